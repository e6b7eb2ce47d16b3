#include "kernels/cuda/device.h"
#include "kernels/cuda/sampling.h"

namespace holdfast::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int kNone = 0x7fffffff;  // an id behind all others

struct Best {
  float value;
  int id;
};

__device__ __forceinline__ bool Before(const Best& a, const Best& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

__device__ __forceinline__ Best BestOfWarp(Best best) {
#pragma unroll
  for (int step = kWarpLanes / 2; step > 0; step /= 2) {
    const Best other = {__shfl_xor_sync(kAllLanes, best.value, step),
                        __shfl_xor_sync(kAllLanes, best.id, step)};
    if (Before(other, best)) best = other;
  }
  return best;
}

// Of the whole block, given to every thread; `scratch` is a Best for each warp.
__device__ __forceinline__ Best BestOfBlock(Best best, Best* scratch) {
  best = BestOfWarp(best);
  if (Lane() == 0) scratch[WarpInBlock()] = best;
  __syncthreads();
  best = scratch[0];
  for (int i = 1; i < kWarps; ++i) {
    if (Before(scratch[i], best)) best = scratch[i];
  }
  __syncthreads();  // before the scratch is used again
  return best;
}

// A block a row: one pass over the logits for each candidate, each looking for
// the first behind the one found before. They stay in the cache.
__global__ void TopKernel(const float* logits, int vocab, int candidates,
                          std::int32_t* ids, float* values) {
  const float* row = logits + std::int64_t{blockIdx.x} * vocab;
  const std::int64_t out = std::int64_t{blockIdx.x} * candidates;
  Best last = {__uint_as_float(0x7f800000u), -1};
  for (int n = 0; n < candidates; ++n) {
    Best best = {__uint_as_float(0xff800000u), kNone};
    for (int i = threadIdx.x; i < vocab; i += kThreads) {
      const Best here = {row[i], i};
      if (Before(last, here) && Before(here, best)) best = here;
    }
    last = BestOfBlock(best, SharedMemory<Best>());
    if (threadIdx.x == 0) {
      ids[out + n] = last.id;
      values[out + n] = last.value;
    }
  }
}

__global__ void KeepKernel(const float* logits, int vocab, int candidates,
                           const float* values, Filter filter, float* weights,
                           Kept* kept) {
  const std::int64_t at = std::int64_t{blockIdx.x} * candidates;
  const float largest = values[at];
  const auto weight = [&](float logit) {
    return expf((logit - largest) / filter.temperature);
  };
  for (int i = threadIdx.x; i < candidates; i += kThreads) {
    weights[at + i] = weight(values[at + i]);
  }
  float total = 0.0f;
  if (!filter.top_k) {
    const float* row = logits + std::int64_t{blockIdx.x} * vocab;
    for (int i = threadIdx.x; i < vocab; i += kThreads) total += weight(row[i]);
    total = BlockSum(total, SharedMemory<float>());
  }
  if (threadIdx.x != 0) return;
  if (filter.top_k) {
    for (int i = 0; i < candidates; ++i) total += weight(values[at + i]);
  }
  Kept result = {};
  result.total = total;
  const float enough = filter.top_p * total;
  while (result.count < candidates &&
         (filter.top_p >= 1.0f || result.sum < enough)) {
    result.sum += weight(values[at + result.count]);
    ++result.count;
  }
  result.short_of = filter.top_p < 1.0f && result.sum < enough ? 1 : 0;
  kept[blockIdx.x] = result;
}

}  // namespace

cudaError_t TopCandidates(cudaStream_t stream, const LogitRows& rows,
                          int candidates, std::int32_t* ids, float* values) {
  return Launch(TopKernel, dim3(static_cast<unsigned>(rows.rows)), kThreads,
                kWarps * sizeof(Best), stream, rows.logits, rows.vocab,
                candidates, ids, values);
}

cudaError_t KeepCandidates(cudaStream_t stream, const LogitRows& rows,
                           int candidates, const float* values,
                           const Filter& filter, float* weights, Kept* kept) {
  return Launch(KeepKernel, dim3(static_cast<unsigned>(rows.rows)), kThreads,
                kWarps * sizeof(float), stream, rows.logits, rows.vocab,
                candidates, values, filter, weights, kept);
}

}  // namespace holdfast::kernels::cuda
