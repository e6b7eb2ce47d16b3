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

// The largest of scores [0, keys). Those up to the next multiple of 16 become
// the least there is; what stood there is never used as a number.
HWY_INLINE float LargestScore(float* HWY_RESTRICT scores, int keys) {
  const DF d;
  const int step = LaneCount();
  const int padded = hwy::RoundUpTo(keys, kVirtualLanes);
  const float least = -std::numeric_limits<float>::infinity();
  for (int j = keys; j < padded; ++j) scores[j] = least;
  // Four at once: one alone waits for itself.
  VF m0 = hn::LoadU(d, scores);
  VF m1 = m0, m2 = m0, m3 = m0;
  int j = step;
  for (; j + 4 * step <= padded; j += 4 * step) {
    m0 = hn::Max(m0, hn::LoadU(d, scores + j));
    m1 = hn::Max(m1, hn::LoadU(d, scores + j + step));
    m2 = hn::Max(m2, hn::LoadU(d, scores + j + 2 * step));
    m3 = hn::Max(m3, hn::LoadU(d, scores + j + 3 * step));
  }
  for (; j < padded; j += step) m0 = hn::Max(m0, hn::LoadU(d, scores + j));
  return hn::GetLane(
      hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

// Replaces scores [0, keys) by their softmax weights relative to the largest,
// and those up to the next multiple of 16, as LargestScore left them, by zeros.
// lane_sums: virtual lane i sums the weights of keys i, 16 + i, ...
HWY_INLINE void WeightsOver(float largest_score, int keys,
                            float* HWY_RESTRICT scores,
                            float* HWY_RESTRICT lane_sums) {
  const DF d;
  const int step = LaneCount();
  const VF largest = hn::Set(d, largest_score);
  const auto weigh = [&](float* numbers) HWY_ATTR {
    const VF weight = ExpOrZero(hn::Sub(hn::LoadU(d, numbers), largest));
    hn::StoreU(weight, d, numbers);
    return weight;
  };
  for (int lane = 0; lane < kVirtualLanes; lane += step) {
    VF sum = hn::Zero(d);
    int j = lane;
    // Four at once, so that the polynomial's numbers are read once for them.
    for (; j + 3 * kVirtualLanes < keys + lane; j += 4 * kVirtualLanes) {
      const VF w0 = weigh(scores + j);
      const VF w1 = weigh(scores + j + kVirtualLanes);
      const VF w2 = weigh(scores + j + 2 * kVirtualLanes);
      const VF w3 = weigh(scores + j + 3 * kVirtualLanes);
      sum = hn::Add(hn::Add(hn::Add(hn::Add(sum, w0), w1), w2), w3);
    }
    for (; j < keys + lane; j += kVirtualLanes) {
      sum = hn::Add(sum, weigh(scores + j));
    }
    hn::StoreU(sum, d, lane_sums + lane);
  }
}

// Both; returns the largest score.
HWY_INLINE float SoftmaxWeights(float* HWY_RESTRICT scores, int keys,
                                float* HWY_RESTRICT lane_sums) {
  const float largest = LargestScore(scores, keys);
  WeightsOver(largest, keys, scores, lane_sums);
  return largest;
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
