#include "kernels/cuda/content_sum.h"
#include "kernels/cuda/device.h"

namespace holdfast::kernels::cuda {
namespace {

using Word = unsigned long long;

constexpr int kThreads = 256;
constexpr int kThreadWords = 16;
constexpr Word kStepA = 0x9e3779b97f4a7c15;
constexpr Word kStepB = 0xd1b54a32d192ed03;

__device__ __forceinline__ Word MixA(Word x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

__device__ __forceinline__ Word MixB(Word x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
  return x ^ x >> 33;
}

__device__ __forceinline__ Word WarpSumOf(Word value) {
#pragma unroll
  for (int step = kWarpLanes / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
  return value;
}

// Grid: [runs of words][blocks].
__global__ void SumKernel(const std::byte* const* blocks, std::size_t offset,
                          std::size_t words, Word* sums) {
  const auto* from = reinterpret_cast<const Word*>(blocks[blockIdx.y] + offset);
  Word a = 0;
  Word b = 0;
#pragma unroll
  for (int i = 0; i < kThreadWords; ++i) {
    const std::size_t at =
        (std::size_t{blockIdx.x} * kThreadWords + i) * kThreads + threadIdx.x;
    if (at >= words) break;
    const Word number = blockIdx.y * words + at + 1;
    a += MixA(from[at] ^ kStepA * number);
    b += MixB(from[at] ^ kStepB * number);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    a += words * sizeof(Word);
    b += words * sizeof(Word);
  }
  a = WarpSumOf(a);
  b = WarpSumOf(b);
  if (Lane() == 0) {
    atomicAdd(&sums[0], a);
    atomicAdd(&sums[1], b);
  }
}

}  // namespace

cudaError_t AddContentSums(cudaStream_t stream, const std::byte* const* blocks,
                           int count, std::size_t offset, std::size_t bytes,
                           unsigned long long* sums) {
  const std::size_t words = bytes / sizeof(Word);
  const dim3 grid(BlocksFor(static_cast<std::int64_t>(words),
                            std::int64_t{kThreads} * kThreadWords),
                  static_cast<unsigned>(count));
  return Launch(SumKernel, grid, kThreads, 0, stream, blocks, offset, words,
                sums);
}

}  // namespace holdfast::kernels::cuda
