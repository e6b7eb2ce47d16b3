// Numbers of the pool as float vectors; included once per target.
#if defined(HOLDFAST_KERNELS_HOST_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_STATE_INL_H_
#undef HOLDFAST_KERNELS_HOST_STATE_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_STATE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/backend.h"
#include "kernels/host/kv_layout.h"
#include "kernels/host/vector_math-inl.h"
#include "kernels/host/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

// Numbers [index, index + lanes) of a V view.
template <StateType kState>
HWY_INLINE VF LoadState(const std::byte* view, std::size_t index) {
  if constexpr (kState == StateType::kBF16) {
    return LoadBf16(view + index * 2);
  } else {
    return hn::LoadU(DF(), reinterpret_cast<const float*>(view) + index);
  }
}

// Numbers [index, index + 2 lanes) of a V view: for bf16 those at even places
// and those at odd ones, which takes one load and no shuffle; for f32 the first
// and the second half.
template <StateType kState>
HWY_INLINE void LoadStatePair(const std::byte* view, std::size_t index,
                              VF& first, VF& second) {
  if constexpr (kState == StateType::kBF16) {
    LoadBf16Pair(view + index * 2, first, second);
  } else {
    first = LoadState<kState>(view, index);
    second = LoadState<kState>(view, index + LaneCount());
  }
}

// Stores what was computed from a pair of vectors of LoadStatePair in the order
// of the view.
template <StateType kState>
HWY_INLINE void StoreStatePair(VF first, VF second, float* to) {
  const DF d;
  if constexpr (kState == StateType::kBF16) {
    hn::StoreInterleaved2(first, second, d, to);
  } else {
    hn::StoreU(first, d, to);
    hn::StoreU(second, d, to + LaneCount());
  }
}

// Where the lanes of keys [key, key + lanes) of one KV head start; key is a
// multiple of the lane count.
HWY_INLINE const std::byte* KeyLanes(const KvShape& shape, const std::byte* k,
                                     int key, int kv_head) {
  return k + KIndex(shape, key, kv_head, 0) * shape.ElementBytes();
}

// Bytes between a key's numbers `dim` and `dim + 2` in either layout: dim
// pairs of bf16 are as wide as one float.
template <StateType kState>
inline constexpr std::size_t kKeyPairBytes = (kState == StateType::kBF16 ? 1
                                                                         : 2) *
                                             4 * kGranuleTokens;

// Numbers `dim` and `dim + 1` (dim even) of the keys at `lanes`.
template <StateType kState>
HWY_INLINE void LoadKeyPair(const std::byte* lanes, int dim, VF& even,
                            VF& odd) {
  const std::byte* p = lanes + dim / 2 * kKeyPairBytes<kState>;
  if constexpr (kState == StateType::kBF16) {
    LoadBf16Pair(p, even, odd);
  } else {
    const DF d;
    const auto* numbers = reinterpret_cast<const float*>(p);
    even = hn::LoadU(d, numbers);
    odd = hn::LoadU(d, numbers + kGranuleTokens);
  }
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
