// Gates: sigmoid, softplus and the decay of a gated delta net; included once
// per target. What each computes is in ARITHMETIC.md.
#if defined(HOLDFAST_KERNELS_HOST_GATE_MATH_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_GATE_MATH_INL_H_
#undef HOLDFAST_KERNELS_HOST_GATE_MATH_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_GATE_MATH_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/host/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

// A NaN stays one: which operand Min and Max return for it is the target's.
HWY_INLINE VF KeepNan(VF x, VF result) {
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// 1 / (1 + e^-x)
HWY_INLINE VF Sigmoid(VF x) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  const VF t =
      hn::Min(hn::Max(hn::Neg(x), hn::Set(d, -87.0f)), hn::Set(d, 88.0f));
  return KeepNan(x, hn::Div(one, hn::Add(one, ExpInRange(t))));
}

// log(1 + e^x) = max(x, 0) + log1p(u), u = e^-|x|, and
// log1p(u) = 2 atanh(s), s = u / (2 + u), at most 1/3.
HWY_INLINE VF Softplus(VF x) {
  const DF d;
  const VF u = ExpInRange(hn::Max(hn::Neg(hn::Abs(x)), hn::Set(d, -87.0f)));
  const VF s = hn::Div(u, hn::Add(u, hn::Set(d, 2.0f)));
  const VF s2 = hn::Mul(s, s);
  VF p = hn::Set(d, 0.0588235294f);
  p = hn::MulAdd(p, s2, hn::Set(d, 0.0666666667f));
  p = hn::MulAdd(p, s2, hn::Set(d, 0.0769230769f));
  p = hn::MulAdd(p, s2, hn::Set(d, 0.0909090909f));
  p = hn::MulAdd(p, s2, hn::Set(d, 0.111111111f));
  p = hn::MulAdd(p, s2, hn::Set(d, 0.142857143f));
  p = hn::MulAdd(p, s2, hn::Set(d, 0.2f));
  p = hn::MulAdd(p, s2, hn::Set(d, 0.333333333f));
  const VF twice = hn::Add(s, s);
  const VF log = hn::MulAdd(hn::Mul(twice, s2), p, twice);
  return KeepNan(x, hn::Add(hn::Max(x, hn::Zero(d)), log));
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
