// CUDA's execution model in ordinary C++, so that kernels run and are tested
// where there is no GPU. Every thread of a block is a fiber; it runs until it
// meets a barrier or a warp operation and goes on when all partners have
// arrived. Nothing else orders threads: a missing barrier shows as soon as the
// order of running is another (SetOrder).
//
// Stricter than a device: shared memory starts as NaN, and an access beyond it
// is a fault; asynchronous copies happen at once or no earlier than the wait
// for them (as the order is); a barrier that some threads do not reach is
// fatal, and so are threads of a block that meet at different barriers and a
// warp operation of fewer than 32 lanes, and loads and stores of vectors, or
// asynchronous copies, at addresses that are no multiples of their size.
//
// Shuffles and the matrix unit order no memory accesses, and in one order of
// running (kLate) they do not here: a write of shared memory that should be
// seen behind one is missed. Weaker in one thing: a read before a shuffle is
// never overtaken by another lane's write behind it, which a device does not
// promise. (compute-sanitizer sees it.)
//
// Included by the fake cuda_runtime.h; for one host thread at a time.
#ifndef HOLDFAST_TESTS_CUDA_EMULATION_EXECUTION_H_
#define HOLDFAST_TESTS_CUDA_EMULATION_EXECUTION_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_in = 1, unsigned y_in = 1, unsigned z_in = 1)
      : x(x_in), y(y_in), z(z_in) {}
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};

// Of the fiber that runs.
inline dim3 threadIdx;
inline dim3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

namespace holdfast::emulation {

enum class Order { kAscending, kDescending, kShuffled, kLate };
// In which order blocks, and threads in a block, run. Ascending: warps side by
// side, asynchronous copies late. Descending: each warp as far ahead as
// barriers let it, copies early. Shuffled: the same by chance. Late: shuffled,
// and other lanes see what one writes to shared memory (of at most 16 KiB) no
// earlier than its next __syncthreads or __syncwarp.
void SetOrder(Order order, std::uint64_t seed = 0);

// Runs `body` once for each thread of each block.
void RunGrid(dim3 grid, dim3 block, std::size_t shared_bytes,
             const std::function<void()>& body);

// Of the running block; at a multiple of 128.
void* SharedMemory();

// `line`: of the source, where all threads of the block must meet.
void BlockBarrier(unsigned line);
// Waits for the warp's other lanes at an operation of the same kind.
enum class WarpOperation { kNone, kSync, kShuffle, kMma };
void WarpBarrier(WarpOperation operation);
// What lane `lane` of the running warp gave in this operation: every lane
// writes its own, meets the barrier, reads the others'. Two turns alternate, so
// that a fast lane's next operation does not overwrite what a slow one reads.
inline constexpr std::size_t kExchangeBytes = 64;
void* ExchangeSlot(int lane);
void NextExchange();  // by every lane, after it has read

// Copies that are done at the latest when the lane waits for them.
void CopyAsync(void* to, const void* from, std::size_t bytes);
void CommitCopies();
void WaitCopies(int groups_left);

inline int Lane() { return static_cast<int>(threadIdx.x % 32); }

template <typename T>
T Shuffle(T value, int from) {
  static_assert(sizeof(T) <= kExchangeBytes);
  std::memcpy(ExchangeSlot(Lane()), &value, sizeof(T));
  WarpBarrier(WarpOperation::kShuffle);
  T result;
  std::memcpy(&result, ExchangeSlot(from % 32), sizeof(T));
  NextExchange();
  return result;
}

// D += A B of one warp: A 16 x 16 and B 16 x 8 of bf16, D 16 x 8 of float, in
// the registers of the m16n8k16 instruction.
void MmaBf16(float (&d)[4], const std::uint32_t (&a)[4],
             const std::uint32_t (&b)[2]);

}  // namespace holdfast::emulation

inline void __syncthreads(
    std::source_location at = std::source_location::current()) {
  holdfast::emulation::BlockBarrier(at.line());
}
inline void __syncwarp(unsigned = 0xffffffffu) {
  holdfast::emulation::WarpBarrier(holdfast::emulation::WarpOperation::kSync);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return holdfast::emulation::Shuffle(value,
                                      holdfast::emulation::Lane() ^ mask);
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return holdfast::emulation::Shuffle(value, lane);
}

// Fibers do not interrupt one another.
template <typename T>
T atomicAdd(T* address, T value) {
  const T old = *address;
  *address = old + value;
  return old;
}

inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}
inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}
template <typename T>
T __ldg(const T* address) {
  return *address;
}
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

#endif  // HOLDFAST_TESTS_CUDA_EMULATION_EXECUTION_H_
