// The lane sum of a run's squares; included once per target.
#if defined(HOLDFAST_KERNELS_HOST_SQUARE_SUM_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_SQUARE_SUM_INL_H_
#undef HOLDFAST_KERNELS_HOST_SQUARE_SUM_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_SQUARE_SUM_INL_H_
#endif

#include <cmath>

#include "hwy/highway.h"
#include "kernels/host/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

// Virtual lane i sums the squares of x[i], x[16 + i], ... in that order.
HWY_INLINE void SquareLanes(const float* x, int cols, float* lanes) {
  const DF d;
  const int step = LaneCount();
  const int whole = cols / kVirtualLanes * kVirtualLanes;
  for (int lane = 0; lane < kVirtualLanes; lane += step) {
    VF sum = hn::Zero(d);
    for (int k = 0; k < whole; k += kVirtualLanes) {
      const VF v = hn::LoadU(d, x + k + lane);
      sum = hn::MulAdd(v, v, sum);
    }
    hn::StoreU(sum, d, lanes + lane);
  }
  for (int k = whole; k < cols; ++k) {
    lanes[k - whole] = std::fma(x[k], x[k], lanes[k - whole]);
  }
}

HWY_INLINE float SquareSum(const float* x, int cols) {
  float lanes[kVirtualLanes];
  SquareLanes(x, cols, lanes);
  return TreeSum(lanes);
}

// scales[r] = 1 / sqrt(lane sum of row r's squares / count + eps), for rows of
// `cols` numbers one after the other, kVirtualLanes of them at most.
HWY_INLINE void InverseNorms(const float* x, int rows, int cols, float count,
                             float eps, float* scales) {
  const DF d;
  float sums[kVirtualLanes] = {};
  for (int r = 0; r < rows; ++r) sums[r] = SquareSum(x + r * cols, cols);
  const int step = LaneCount();
  for (int r = 0; r < rows; r += step) {
    const VF mean = hn::Div(hn::LoadU(d, sums + r), hn::Set(d, count));
    const VF norm = hn::Sqrt(hn::Add(mean, hn::Set(d, eps)));
    hn::StoreU(hn::Div(hn::Set(d, 1.0f), norm), d, scales + r);
  }
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
