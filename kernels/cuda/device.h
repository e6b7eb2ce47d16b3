// What the kernels are written in: CUDA, with the few things that ordinary C++
// cannot spell behind functions. tests/cuda_emulation compiles the same sources
// with a cuda_runtime.h of its own (HOLDFAST_CUDA_EMULATION). For .cu files.
#ifndef HOLDFAST_KERNELS_CUDA_DEVICE_H_
#define HOLDFAST_KERNELS_CUDA_DEVICE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace holdfast::kernels::cuda {

inline constexpr int kWarpLanes = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// The block's dynamic shared memory. There is no other.
template <typename T>
__device__ __forceinline__ T* SharedMemory() {
#ifdef HOLDFAST_CUDA_EMULATION
  return static_cast<T*>(emulation::SharedMemory());
#else
  extern __shared__ __align__(128) unsigned char holdfast_shared[];
  return reinterpret_cast<T*>(holdfast_shared);
#endif
}

__device__ __forceinline__ int Lane() {
  return static_cast<int>(threadIdx.x) % kWarpLanes;
}
__device__ __forceinline__ int WarpInBlock() {
  return static_cast<int>(threadIdx.x) / kWarpLanes;
}

__device__ __forceinline__ int Min(int a, int b) { return a < b ? a : b; }

// ---- 16-bit numbers ----

__device__ __forceinline__ float Bf16ToFloat(std::uint32_t bits) {
  return __uint_as_float(bits << 16);
}
// Of a pair in one word: the lower and the upper number.
__device__ __forceinline__ float LowBf16(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float HighBf16(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

// To nearest, ties to even; a NaN stays one.
__device__ __forceinline__ std::uint32_t FloatToBf16(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
__device__ __forceinline__ std::uint32_t PackBf16(float low, float high) {
#ifdef __CUDA_ARCH__
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return FloatToBf16(low) | FloatToBf16(high) << 16;
#endif
}
__device__ __forceinline__ float RoundToBf16(float value) {
  return Bf16ToFloat(FloatToBf16(value));
}

__device__ __forceinline__ float HalfToFloat(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;"
      : "=f"(value)
      : "h"(static_cast<unsigned short>(bits)));
  return value;
#else
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 31u;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // mantissa x 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return __uint_as_float(__float_as_uint(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return __uint_as_float(sign | wide << 23 | mantissa << 13);
#endif
}

// F8_E4M3: sign, 4 bits of exponent, 3 of mantissa, no infinity.
__device__ __forceinline__ float F8ToFloat(std::uint32_t bits) {
  const std::uint32_t sign = (bits & 0x80u) << 24;
  const std::uint32_t magnitude = bits & 0x7fu;
  if (magnitude == 0x7fu) return __uint_as_float(0x7fc00000u);
  // Exponent and mantissa where a float has them; 2^120 mends the bias, for
  // subnormal numbers too.
  const float small = __uint_as_float(magnitude << 20);
  return __uint_as_float(__float_as_uint(small * 0x1p120f) | sign);
}

// ---- sums in a fixed order ----

__device__ __forceinline__ float WarpSum(float value) {
#pragma unroll
  for (int step = kWarpLanes / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
  return value;
}

__device__ __forceinline__ float WarpMax(float value) {
#pragma unroll
  for (int step = kWarpLanes / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}

// Of a whole block, given to every thread. scratch: a float for each warp, used
// by nothing else until the next barrier.
__device__ __forceinline__ float BlockSum(float value, float* scratch) {
  value = WarpSum(value);
  if (Lane() == 0) scratch[WarpInBlock()] = value;
  __syncthreads();
  float sum = 0.0f;
  const int warps = static_cast<int>(blockDim.x) / kWarpLanes;
  for (int i = 0; i < warps; ++i) sum += scratch[i];
  return sum;
}

__device__ __forceinline__ float Sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}
__device__ __forceinline__ float Silu(float x) { return x / (1.0f + expf(-x)); }

// ---- 16-byte copies from global to shared memory, in the background ----

__device__ __forceinline__ void CopyAsync16(void* shared, const void* global) {
#ifdef HOLDFAST_CUDA_EMULATION
  emulation::CopyAsync(shared, global, 16);
#else
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to),
               "l"(global)
               : "memory");
#endif
}
__device__ __forceinline__ void CommitCopies() {
#ifdef HOLDFAST_CUDA_EMULATION
  emulation::CommitCopies();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Until at most kLeft of the thread's newest groups are under way.
template <int kLeft>
__device__ __forceinline__ void WaitCopies() {
#ifdef HOLDFAST_CUDA_EMULATION
  emulation::WaitCopies(kLeft);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

// ---- matrix unit ----

// D += A B of a warp: A 16 x 16, B 16 x 8, of bf16; D 16 x 8 of float. With
// g = lane / 4 and t = lane % 4 a lane holds
//   A: rows g (a[0], a[2]) and g + 8 (a[1], a[3]), columns 2t, 2t + 1 (a[0],
//      a[1]) and 2t + 8, 2t + 9 (a[2], a[3]);
//   B: column g, rows 2t, 2t + 1 (b[0]) and 2t + 8, 2t + 9 (b[1]);
//   D: rows g (d[0], d[1]) and g + 8 (d[2], d[3]), columns 2t and 2t + 1.
__device__ __forceinline__ void MmaBf16(float (&d)[4],
                                        const std::uint32_t (&a)[4],
                                        const std::uint32_t (&b)[2]) {
#ifdef HOLDFAST_CUDA_EMULATION
  emulation::MmaBf16(d, a, b);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// ---- launches ----

// Shared memory that a launch may have without asking for it.
inline constexpr std::size_t kPlainSharedBytes = 48 << 10;

// What a launch is refused for comes back here; what happens in it, at a later
// synchronisation.
template <typename... Parameters, typename... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), dim3 grid, int threads,
                   std::size_t shared_bytes, cudaStream_t stream,
                   Arguments&&... arguments) {
  if (shared_bytes > kPlainSharedBytes) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel,
                            std::forward<Arguments>(arguments)...);
}

inline unsigned BlocksFor(std::int64_t work, std::int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_DEVICE_H_
