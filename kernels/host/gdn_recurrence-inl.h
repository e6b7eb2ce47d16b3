// The gated delta rule over stripes of the state; included once per target.
#if defined(HOLDFAST_KERNELS_HOST_GDN_RECURRENCE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_GDN_RECURRENCE_INL_H_
#undef HOLDFAST_KERNELS_HOST_GDN_RECURRENCE_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_GDN_RECURRENCE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/host/gdn_kernels.h"
#include "kernels/host/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

inline constexpr int kGdnStripes = 1;

void GdnRecur(const GdnStripes& s) {
  const DF d;
  const int step = LaneCount();
  if (s.from_zero) {
    std::memset(s.state, 0, sizeof(float) * kStripe * s.key_dim * s.stripes);
  }
  for (int t = 0; t < s.rows; ++t) {
    const float* q = s.q + static_cast<std::ptrdiff_t>(t) * s.key_dim;
    const float* k = s.k + static_cast<std::ptrdiff_t>(t) * s.key_dim;
    const VF decay = hn::Set(d, s.decay[t]);
    const VF beta = hn::Set(d, s.beta[t]);
    for (int c = 0; c < kStripe; c += step) {
      float* v = s.v + t * s.v_stride + c;
      VF read = hn::Zero(d);
      for (int i = 0; i < s.key_dim; ++i) {
        const VF state =
            hn::Mul(decay, hn::LoadU(d, s.state + i * kStripe + c));
        read = hn::MulAdd(hn::Set(d, k[i]), state, read);
      }
      const VF u = hn::Mul(beta, hn::Sub(hn::LoadU(d, v), read));
      VF out = hn::Zero(d);
      for (int i = 0; i < s.key_dim; ++i) {
        const VF old = hn::Mul(decay, hn::LoadU(d, s.state + i * kStripe + c));
        const VF state = hn::MulAdd(hn::Set(d, k[i]), u, old);
        hn::StoreU(state, d, s.state + i * kStripe + c);
        out = hn::MulAdd(hn::Set(d, q[i]), state, out);
      }
      hn::StoreU(out, d, v);
    }
  }
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
