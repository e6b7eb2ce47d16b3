// Causal attention over the pool, for single rows (attention_decode-inl.h) and
// for many (attention_prefill-inl.h).
#include "kernels/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/attention_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include <algorithm>

#include "kernels/host/attention_combine-inl.h"
#include "kernels/host/attention_decode-inl.h"
#include "kernels/host/attention_prefill-inl.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

void Tile(const KvShape& shape, const KvTile& tile, int keys, const float* q,
          int heads, float* scores, float* partials) {
  if (shape.state_type == StateType::kBF16) {
    DecodeTile<StateType::kBF16>(shape, tile, keys, q, heads, scores, partials)
        .Run();
  } else {
    DecodeTile<StateType::kF32>(shape, tile, keys, q, heads, scores, partials)
        .Run();
  }
}

void Prefill(const PrefillChunk& chunk) {
  if (chunk.shape.state_type == StateType::kBF16) {
    PrefillOfState<StateType::kBF16>(chunk);
  } else {
    PrefillOfState<StateType::kF32>(chunk);
  }
}

void Merge(const float* next, int heads, int head_dim, float* total) {
  const int floats = kPartialHeader + head_dim;
  for (int head = 0; head < heads; head += kVirtualLanes) {
    const int count = std::min(kVirtualLanes, heads - head);
    MergeHeads(next + head * floats, count, head_dim, total + head * floats);
  }
}

void Combine(const float* first, const float* next, int tiles,
             std::size_t stride, int head_dim, float* scratch, float* out) {
  CombineTiles({first, next, tiles, stride}, head_dim, scratch, out);
}

const AttentionKernels* GetAttentionKernels() {
  static constexpr AttentionKernels kTable = {&Tile, &Merge, &Combine,
                                              &Prefill};
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
