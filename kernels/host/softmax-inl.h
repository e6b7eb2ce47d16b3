// The softmax of one row over one tile of keys, and the combination of tiles;
// included once per target. Prefill and decode use the same code.
#if defined(HOLDFAST_KERNELS_HOST_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_SOFTMAX_INL_H_
#undef HOLDFAST_KERNELS_HOST_SOFTMAX_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_SOFTMAX_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

// Where a partial result's lane sums start.
inline constexpr int kPartialLanes = 16;

// Replaces scores [0, keys) by their softmax weights relative to the largest,
// which is returned, and those up to the next multiple of 16 by zeros; what
// stood there is never used as a number. lane_sums: virtual lane i sums the
// weights of keys i, 16 + i, ...
HWY_INLINE float SoftmaxWeights(float* HWY_RESTRICT scores, int keys,
                                float* HWY_RESTRICT lane_sums) {
  const DF d;
  const int step = LaneCount();
  const int padded = (keys + kVirtualLanes - 1) / kVirtualLanes * kVirtualLanes;
  for (int j = keys; j < padded; ++j) {
    scores[j] = -std::numeric_limits<float>::infinity();
  }
  VF largest = hn::LoadU(d, scores);
  for (int j = step; j < padded; j += step) {
    largest = hn::Max(largest, hn::LoadU(d, scores + j));
  }
  largest = hn::MaxOfLanes(d, largest);
  for (int lane = 0; lane < kVirtualLanes; lane += step) {
    VF sum = hn::Zero(d);
    for (int j = lane; j < padded; j += kVirtualLanes) {
      const VF weight = ExpOrZero(hn::Sub(hn::LoadU(d, scores + j), largest));
      hn::StoreU(weight, d, scores + j);
      sum = hn::Add(sum, weight);
    }
    hn::StoreU(sum, d, lane_sums + lane);
  }
  return hn::GetLane(largest);
}

// old = fma(added, added_scale, old * old_scale)
HWY_INLINE void ScaleAdd(const float* HWY_RESTRICT added, VF added_scale,
                         VF old_scale, int count, float* HWY_RESTRICT old) {
  const DF d;
  const int step = LaneCount();
  for (int i = 0; i < count; i += step) {
    const VF scaled = hn::Mul(hn::LoadU(d, old + i), old_scale);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, added + i), added_scale, scaled), d,
               old + i);
  }
}

// Adds the next tile's header (largest score and lane sums) to `total`; the
// factors are for the outputs.
HWY_INLINE void MergeHeader(const float* HWY_RESTRICT next,
                            float* HWY_RESTRICT total, VF& next_scale,
                            VF& total_scale) {
  const DF d;
  const float largest = total[0] > next[0] ? total[0] : next[0];
  total_scale = ExpOrZero(hn::Set(d, total[0] - largest));
  next_scale = ExpOrZero(hn::Set(d, next[0] - largest));
  total[0] = largest;
  ScaleAdd(next + kPartialLanes, next_scale, total_scale, kVirtualLanes,
           total + kPartialLanes);
}

HWY_INLINE void MergePartial(const float* HWY_RESTRICT next, int head_dim,
                             float* HWY_RESTRICT total) {
  VF next_scale;
  VF total_scale;
  MergeHeader(next, total, next_scale, total_scale);
  ScaleAdd(next + kPartialHeader, next_scale, total_scale, head_dim,
           total + kPartialHeader);
}

HWY_INLINE void FinishPartial(const float* HWY_RESTRICT total, int head_dim,
                              float* HWY_RESTRICT out) {
  const DF d;
  const int step = LaneCount();
  const VF sum = hn::Set(d, TreeSum(total + kPartialLanes));
  for (int i = 0; i < head_dim; i += step) {
    hn::StoreU(hn::Div(hn::LoadU(d, total + kPartialHeader + i), sum), d,
               out + i);
  }
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
