// Vector pieces that several kernels share; included once per target.
#if defined(HOLDFAST_KERNELS_HOST_VECTOR_MATH_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_VECTOR_MATH_INL_H_
#undef HOLDFAST_KERNELS_HOST_VECTOR_MATH_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_VECTOR_MATH_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/host/highway_targets.h"
// After the choice of targets:
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

namespace hn = hwy::HWY_NAMESPACE;

// Sums have 16 virtual lanes on every target, held by 16 / Lanes(d) vectors.
inline constexpr int kVirtualLanes = 16;
using DF = hn::CappedTag<float, kVirtualLanes>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;

HWY_INLINE int LaneCount() { return static_cast<int>(hn::Lanes(DF())); }

// e^x lane by lane for -87 <= x <= 88 (ARITHMETIC.md, "exp").
HWY_INLINE VF ExpInRange(VF x) {
  const DF d;
  const DI di;
  const VF magic = hn::Set(d, 12582912.0f);
  const VF z = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const VF n = hn::Sub(z, magic);
  VF r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  VF p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0f)));
  return hn::BitCast(
      d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, z))));
}

// e^x for x <= 0, exactly 0 below -87: a softmax weight.
HWY_INLINE VF ExpOrZero(VF x) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(DF(), -87.0f)), ExpInRange(x));
}

// x / (1 + e^-x)
HWY_INLINE VF Silu(VF x) {
  const DF d;
  const VF t =
      hn::Min(hn::Max(hn::Neg(x), hn::Set(d, -87.0f)), hn::Set(d, 88.0f));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), ExpInRange(t)));
}

// The fixed tree over 16 virtual lanes: i + (i + 8), then 4, 2, 1.
HWY_INLINE float TreeSum(const float* lanes) {
  const hn::CappedTag<float, 8> d8;
  const hn::CappedTag<float, 4> d4;
  alignas(32) float sum[8];
  for (int i = 0; i < 8; i += static_cast<int>(hn::Lanes(d8))) {
    hn::Store(hn::Add(hn::LoadU(d8, lanes + i), hn::LoadU(d8, lanes + i + 8)),
              d8, sum + i);
  }
  hn::Store(hn::Add(hn::Load(d4, sum), hn::Load(d4, sum + 4)), d4, sum);
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
