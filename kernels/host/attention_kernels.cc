// Attention of one row over one tile of keys, read from the pool as it lies
// there, and the combination of tiles.
#include "kernels/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/attention_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include <algorithm>
#include <cstring>

#include "kernels/float16.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/softmax-inl.h"
#include "kernels/host/vector_math-inl.h"
#include "shared/cache_layout.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

inline float KNumber(const KvShape& shape, const std::byte* k, int key,
                     int kv_head, int dim) {
  const int granule = key / kGranuleTokens;
  const int token = key % kGranuleTokens;
  const std::size_t base =
      (static_cast<std::size_t>(granule) * shape.kv_heads + kv_head) *
      shape.head_dim * kGranuleTokens;
  if (shape.state_type == StateType::kF32) {
    return reinterpret_cast<const float*>(
        k)[base + dim * kGranuleTokens + token];
  }
  const auto* bits = reinterpret_cast<const std::uint16_t*>(k);
  return Bf16ToFloat(
      bits[base + dim / 2 * 2 * kGranuleTokens + token * 2 + dim % 2]);
}

inline float VNumber(const KvShape& shape, const std::byte* v, int key,
                     int kv_head, int dim) {
  const std::size_t index =
      (static_cast<std::size_t>(key) * shape.kv_heads + kv_head) *
          shape.head_dim +
      dim;
  if (shape.state_type == StateType::kF32) {
    return reinterpret_cast<const float*>(v)[index];
  }
  return Bf16ToFloat(reinterpret_cast<const std::uint16_t*>(v)[index]);
}

void Tile(const KvShape& shape, const KvTile& tile, int keys, const float* q,
          int heads, float* scores, float* partials) {
  const int dims = shape.head_dim;
  const int group = heads / shape.kv_heads;
  for (int head = 0; head < heads; ++head) {
    const int kv_head = head / group;
    const float* query = q + static_cast<std::size_t>(head) * dims;
    float* partial =
        partials + static_cast<std::size_t>(head) * (kPartialHeader + dims);
    for (int key = 0; key < keys; ++key) {
      float score = 0.0f;
      for (int dim = 0; dim < dims; ++dim) {
        score = std::fma(query[dim], KNumber(shape, tile.k, key, kv_head, dim),
                         score);
      }
      scores[key] = score;
    }
    partial[0] = SoftmaxWeights(scores, keys, partial + 16);
    float* out = partial + kPartialHeader;
    std::fill(out, out + dims, 0.0f);
    for (int key = 0; key < keys; ++key) {
      for (int dim = 0; dim < dims; ++dim) {
        out[dim] = std::fma(
            scores[key], VNumber(shape, tile.v, key, kv_head, dim), out[dim]);
      }
    }
    for (int dim = 0; dim < dims; ++dim) out[dim] += 0.0f;
  }
}

void Combine(const float* partials, int tiles, std::size_t stride, int head_dim,
             float* scratch, float* out) {
  const std::size_t count = kPartialHeader + head_dim;
  std::memcpy(scratch, partials, count * sizeof(float));
  for (int tile = 1; tile < tiles; ++tile) {
    MergePartial(partials + tile * stride, head_dim, scratch);
  }
  FinishPartial(scratch, head_dim, out);
}

const AttentionKernels* GetAttentionKernels() {
  static constexpr AttentionKernels kTable = {&Tile, &Combine};
  return &kTable;
}

#else

const AttentionKernels* GetAttentionKernels() { return nullptr; }

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(GetAttentionKernels);

const AttentionKernels* ChooseAttentionKernels() {
  return HWY_DYNAMIC_DISPATCH(GetAttentionKernels)();
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
