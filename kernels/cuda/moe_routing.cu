#include <climits>

#include "kernels/cuda/device.h"
#include "kernels/cuda/moe.h"

namespace holdfast::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int kSortThreads = 512;
static_assert(kMostTopK <= kWarpLanes);

struct Candidate {
  float logit;
  int id;
};

// Whether a comes before b: the larger logit, of equals the lower id.
__device__ __forceinline__ bool Before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The first after `last` in that order; the same for every lane.
__device__ __forceinline__ Candidate NextBest(const float* logits, int experts,
                                              const Candidate& last) {
  Candidate best = {-INFINITY, INT_MAX};
  for (int id = Lane(); id < experts; id += kWarpLanes) {
    const Candidate one = {logits[id], id};
    if (Before(last, one) && Before(one, best)) best = one;
  }
#pragma unroll
  for (int step = kWarpLanes / 2; step > 0; step /= 2) {
    const Candidate other = {__shfl_xor_sync(kAllLanes, best.logit, step),
                             __shfl_xor_sync(kAllLanes, best.id, step)};
    if (Before(other, best)) best = other;
  }
  return best;
}

// A warp a row. Logits that are not numbers choose no expert; those places take
// the ids from 0 up, so that no memory is missed (their row is lost anyway).
__global__ void RouteKernel(const float* logits, int stride, int rows,
                            int experts, int top_k, bool normalise,
                            std::int32_t* ids, float* weights) {
  const int row = static_cast<int>(blockIdx.x) * kWarps + WarpInBlock();
  if (row >= rows) return;  // the whole warp
  const float* mine = logits + std::int64_t{row} * stride;
  Candidate last = {INFINITY, -1};
  Candidate kept = {-INFINITY, INT_MAX};  // lane j: the j-th best
  float largest = 0.0f;
  for (int j = 0; j < top_k; ++j) {
    last = NextBest(mine, experts, last);
    if (last.id == INT_MAX) last.id = j;
    if (j == 0) largest = last.logit;
    if (Lane() == j) kept = last;
  }
  float sum = 0.0f;
  if (normalise) {
    sum = WarpSum(Lane() < top_k ? expf(kept.logit - largest) : 0.0f);
  } else {
    for (int id = Lane(); id < experts; id += kWarpLanes) {
      sum += expf(mine[id] - largest);
    }
    sum = WarpSum(sum);
  }
  int place = 0;  // among the row's experts, ascending
  for (int j = 0; j < top_k; ++j) {
    const int other = __shfl_sync(kAllLanes, kept.id, j);
    if (other < kept.id || (other == kept.id && j < Lane())) ++place;
  }
  if (Lane() < top_k) {
    const int pair = row * top_k + place;
    ids[pair] = kept.id;
    weights[pair] = expf(kept.logit - largest) / sum;
  }
}

// One block: thread e takes experts e, e + kSortThreads, ... Shared memory: a
// count for each expert.
__global__ void SortKernel(int pairs, int experts, int most_tiles,
                           Routing routing) {
  int* const counts = SharedMemory<int>();
  const int thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < experts; e += kSortThreads) {
    int count = 0;
    for (int pair = 0; pair < pairs; ++pair) {
      count += routing.experts[pair] == e ? 1 : 0;
    }
    counts[e] = count;
  }
  __syncthreads();
  if (thread == 0) {
    int first = 0;
    int tile = 0;
    for (int e = 0; e < experts; ++e) {
      routing.first[e] = first;
      for (int at = 0; at < counts[e]; at += kPairTile, ++tile) {
        routing.tile_expert[tile] = e;
        routing.tile_first[tile] = first + at;
      }
      first += counts[e];
      counts[e] = first - counts[e];
    }
    routing.first[experts] = first;
    for (; tile < most_tiles; ++tile) routing.tile_expert[tile] = -1;
  }
  __syncthreads();
  for (int e = thread; e < experts; e += kSortThreads) {
    int at = counts[e];
    for (int pair = 0; pair < pairs; ++pair) {
      if (routing.experts[pair] == e) routing.order[at++] = pair;
    }
  }
}

__global__ void CombineKernel(const Routing routing, const float* y, int rows,
                              int top_k, int hidden, float* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= std::int64_t{rows} * hidden) return;
  const std::int64_t row = i / hidden;
  float sum = 0.0f;
  for (int j = 0; j < top_k; ++j) {
    const std::int64_t pair = row * top_k + j;
    sum = fmaf(routing.weights[pair], y[pair * hidden + i % hidden], sum);
  }
  out[i] = sum;
}

std::size_t Aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

int MostTiles(const MoeShape& shape, int rows) {
  const int pairs = rows * shape.top_k;
  return pairs / kPairTile + (pairs < shape.experts ? pairs : shape.experts);
}

Routing CarveRouting(const MoeShape& shape, int rows, std::byte* memory) {
  const std::size_t pairs = std::size_t{4} * rows * shape.top_k;
  const std::size_t tiles = std::size_t{4} * (MostTiles(shape, rows) + 1);
  const auto take = [&memory](std::size_t bytes) {
    std::byte* const start = memory;
    memory += Aligned(bytes);
    return reinterpret_cast<std::int32_t*>(start);
  };
  Routing routing;
  routing.experts = take(pairs);
  routing.weights = reinterpret_cast<float*>(take(pairs));
  routing.order = take(pairs);
  routing.first = take(std::size_t{4} * (shape.experts + 1));
  routing.tile_expert = take(tiles);
  routing.tile_first = take(tiles);
  return routing;
}

std::size_t RoutingBytes(const MoeShape& shape, int rows) {
  const std::size_t pairs = std::size_t{4} * rows * shape.top_k;
  const std::size_t tiles = std::size_t{4} * (MostTiles(shape, rows) + 1);
  return 3 * Aligned(pairs) + Aligned(std::size_t{4} * (shape.experts + 1)) +
         2 * Aligned(tiles);
}

cudaError_t Route(cudaStream_t stream, const MoeShape& shape,
                  const float* logits, int logits_stride, int rows,
                  const Routing& routing) {
  const cudaError_t error =
      Launch(RouteKernel, dim3(BlocksFor(rows, kWarps)), kThreads, 0, stream,
             logits, logits_stride, rows, shape.experts, shape.top_k,
             shape.normalise, routing.experts, routing.weights);
  if (error != cudaSuccess) return error;
  return Launch(SortKernel, dim3(1), kSortThreads,
                sizeof(int) * static_cast<std::size_t>(shape.experts), stream,
                rows * shape.top_k, shape.experts, MostTiles(shape, rows),
                routing);
}

cudaError_t CombinePairs(cudaStream_t stream, const MoeShape& shape,
                         const Routing& routing, const float* y, int rows,
                         float* out) {
  const dim3 grid(BlocksFor(std::int64_t{rows} * shape.hidden, kThreads));
  return Launch(CombineKernel, grid, kThreads, 0, stream, routing, y, rows,
                shape.top_k, shape.hidden, out);
}

}  // namespace holdfast::kernels::cuda
