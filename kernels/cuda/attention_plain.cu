#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.h"

namespace holdfast::kernels::cuda {
namespace {

// The most dims that a lane holds.
constexpr int kLaneDims = 8;

// A warp a row and query head. 32 keys at a time: first a key a lane, for their
// weights (in shared memory), then dims over the lanes.
__global__ void PlainKernel(PoolShape pool, AttentionArguments arguments,
                            const SpanPlace* spans) {
  const SpanPlace span = spans[blockIdx.z];
  const int row = static_cast<int>(blockIdx.x);
  if (row >= span.rows) return;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (arguments.heads / pool.kv_heads);
  const std::int64_t at = span.first_row + row;
  const float* q = arguments.q + at * arguments.q_stride + head * pool.head_dim;
  const std::size_t head_at =
      sizeof(float) * HeadGranule(pool.head_dim) * kv_head;
  const auto view = [&](int key, std::size_t offset) {
    const std::byte* granule =
        span.blocks[key / kBlockTokens] +
        key % kBlockTokens / kGranuleTokens * pool.granule_bytes;
    return reinterpret_cast<const float*>(granule + offset + head_at);
  };
  auto* const weights = SharedMemory<float>();
  float out[kLaneDims] = {};
  float most = -INFINITY;
  float sum = 0.0f;
  const int keys = span.position + row + 1;
  for (int first = 0; first < keys; first += kWarpLanes) {
    const int mine = first + Lane();
    float score = -INFINITY;
    if (mine < keys) {
      const float* k = view(mine, pool.k_offset);
      const int token = mine % kGranuleTokens;
      score = 0.0f;
      for (int d = 0; d < pool.head_dim; ++d) {
        score = fmaf(q[d], k[KIndex(token, d)], score);
      }
      score *= arguments.scale;
    }
    const float larger = fmaxf(most, WarpMax(score));
    const float factor = expf(most - larger);
    const float weight = expf(score - larger);
    most = larger;
    sum = fmaf(sum, factor, WarpSum(weight));
    weights[Lane()] = weight;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kLaneDims; ++i) out[i] *= factor;
    const int end = Min(keys, first + kWarpLanes);
    for (int key = first; key < end; ++key) {
      const float* v = view(key, pool.v_offset);
      const int token = key % kGranuleTokens;
#pragma unroll
      for (int i = 0; i < kLaneDims; ++i) {
        const int d = Lane() + i * kWarpLanes;
        if (d < pool.head_dim) {
          out[i] = fmaf(weights[key - first], v[VIndex(token, d)], out[i]);
        }
      }
    }
    __syncwarp();  // before the weights are overwritten
  }
  float* to = arguments.out + (at * arguments.heads + head) * pool.head_dim;
#pragma unroll
  for (int i = 0; i < kLaneDims; ++i) {
    const int d = Lane() + i * kWarpLanes;
    if (d < pool.head_dim) to[d] = out[i] / sum;
  }
}

}  // namespace

cudaError_t PlainAttention(cudaStream_t stream, const PoolShape& pool,
                           const AttentionArguments& arguments,
                           const LaunchTable& table) {
  const dim3 grid(static_cast<unsigned>(table.longest_span),
                  static_cast<unsigned>(arguments.heads),
                  static_cast<unsigned>(table.span_count));
  return Launch(PlainKernel, grid, kWarpLanes, kWarpLanes * sizeof(float),
                stream, pool, arguments, table.spans);
}

}  // namespace holdfast::kernels::cuda
