#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.h"

namespace holdfast::kernels::cuda {
namespace {

// The most dims that a lane holds.
constexpr int kLaneDims = 8;

// A warp a row and query head; keys one after the other.
__global__ void PlainKernel(PoolShape pool, AttentionArguments arguments,
                            const SpanPlace* spans) {
  const SpanPlace span = spans[blockIdx.z];
  const int row = static_cast<int>(blockIdx.x);
  if (row >= span.rows) return;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (arguments.heads / pool.kv_heads);
  const std::int64_t at = span.first_row + row;
  const float* q = arguments.q + at * arguments.q_stride + head * pool.head_dim;
  float out[kLaneDims] = {};
  float most = -INFINITY;
  float sum = 0.0f;
  for (int key = 0; key <= span.position + row; ++key) {
    const std::byte* granule =
        span.blocks[key / kBlockTokens] +
        key % kBlockTokens / kGranuleTokens * pool.granule_bytes;
    const std::size_t head_at =
        sizeof(float) * HeadGranule(pool.head_dim) * kv_head;
    const auto* k =
        reinterpret_cast<const float*>(granule + pool.k_offset + head_at);
    const auto* v =
        reinterpret_cast<const float*>(granule + pool.v_offset + head_at);
    const int token = key % kGranuleTokens;
    float score = 0.0f;
    for (int d = Lane(); d < pool.head_dim; d += kWarpLanes) {
      score = fmaf(q[d], k[KIndex(token, d)], score);
    }
    score = WarpSum(score) * arguments.scale;
    const float larger = fmaxf(most, score);
    const float factor = expf(most - larger);
    const float weight = expf(score - larger);
    most = larger;
    sum = fmaf(sum, factor, weight);
#pragma unroll
    for (int i = 0; i < kLaneDims; ++i) {
      const int d = Lane() + i * kWarpLanes;
      if (d < pool.head_dim) {
        out[i] = fmaf(out[i], factor, weight * v[VIndex(token, d)]);
      }
    }
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
  return Launch(PlainKernel, grid, kWarpLanes, 0, stream, pool, arguments,
                table.spans);
}

}  // namespace holdfast::kernels::cuda
