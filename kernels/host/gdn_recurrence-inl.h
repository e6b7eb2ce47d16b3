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

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/host/gdn_kernels.h"
#include "kernels/host/repeat.h"
#include "kernels/host/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

// Two stripes at a time where registers are wide: with two vectors the chains
// of sums would wait for themselves.
#if HWY_HAVE_SCALABLE
inline constexpr int kGdnStripes = 1;
#else
inline constexpr int kGdnStripes = HWY_MAX_BYTES >= 64 ? 2 : 1;
#endif

// Where vector j of the stripes starts in row 0 of the key dimension.
#define HF_STATE(j)                                         \
  [[maybe_unused]] float* HWY_RESTRICT s##j =               \
      x.state + j * lanes / kStripe * x.key_dim * kStripe + \
      j * lanes % kStripe;
#define HF_READ_ZERO(j) [[maybe_unused]] VF read##j = hn::Zero(d);
#define HF_READ_CLEAR(j) read##j = hn::Zero(d);
#define HF_OUT_ZERO(j) [[maybe_unused]] VF out##j = hn::Zero(d);
#define HF_OUT_STORE(j) \
  if constexpr (kVectors > j) hn::StoreU(out##j, d, v + j * lanes);
#define HF_DELTA(j)                                             \
  [[maybe_unused]] VF u##j = hn::Zero(d);                       \
  if constexpr (kVectors > j) {                                 \
    const VF value = hn::LoadU(d, v + j * lanes);               \
    u##j = hn::Mul(beta, hn::NegMulAdd(decay, read##j, value)); \
  }
// The state's product with k.
#define HF_READ(j)                                               \
  if constexpr (kVectors > j) {                                  \
    read##j = hn::MulAdd(key, hn::LoadU(d, s##j + at), read##j); \
  }
// The next state and its product with q.
#define HF_STEP(j)                                          \
  if constexpr (kVectors > j) {                             \
    const VF old = hn::Mul(decay, hn::LoadU(d, s##j + at)); \
    const VF state = hn::MulAdd(key, u##j, old);            \
    hn::StoreU(state, d, s##j + at);                        \
    out##j = hn::MulAdd(query, state, out##j);              \
  }
// The same, and its product with the next row's k.
#define HF_STEP_AND_READ(j)                                 \
  if constexpr (kVectors > j) {                             \
    const VF old = hn::Mul(decay, hn::LoadU(d, s##j + at)); \
    const VF state = hn::MulAdd(key, u##j, old);            \
    hn::StoreU(state, d, s##j + at);                        \
    out##j = hn::MulAdd(query, state, out##j);              \
    read##j = hn::MulAdd(next_key, state, read##j);         \
  }

// Brings half of a row of the stripes into the cache.
template <int kVectors>
HWY_INLINE void PrefetchHalf(const GdnStripes& x, const float* row) {
  const int stripes = kVectors * LaneCount() / kStripe;
  for (int s = 0; s < stripes; ++s, row += x.key_dim * kStripe) {
    hwy::Prefetch(row);
  }
}

// The state stays in the first-level cache; a pass over it does the update of
// one row together with the read of the next. The first and the last pass bring
// the stripes at `ahead` into the cache.
template <int kVectors>
HWY_INLINE void RecurRows(const GdnStripes& x, const float* ahead) {
  const DF d;
  [[maybe_unused]] const int lanes = LaneCount();
  HF_REPEAT_8(HF_STATE)
  const float* HWY_RESTRICT q = x.q;
  const float* HWY_RESTRICT k = x.k;
  float* HWY_RESTRICT v = x.v;
  HF_REPEAT_8(HF_READ_ZERO)
  for (int i = 0; i < x.key_dim; ++i) {
    const int at = i * kStripe;
    const VF key = hn::Set(d, k[i]);
    HF_REPEAT_8(HF_READ)
    PrefetchHalf<kVectors>(x, ahead + at);
  }
  const int last = x.rows - 1;
  for (int t = 0; t < last; ++t) {
    const VF decay = hn::Set(d, x.decay[t]);
    const VF beta = hn::Set(d, x.beta[t]);
    HF_REPEAT_8(HF_DELTA)
    HF_REPEAT_8(HF_READ_CLEAR)
    HF_REPEAT_8(HF_OUT_ZERO)
    const float* HWY_RESTRICT next = k + x.key_dim;
    for (int i = 0; i < x.key_dim; ++i) {
      const int at = i * kStripe;
      const VF key = hn::Set(d, k[i]);
      const VF query = hn::Set(d, q[i]);
      const VF next_key = hn::Set(d, next[i]);
      HF_REPEAT_8(HF_STEP_AND_READ)
    }
    HF_REPEAT_8(HF_OUT_STORE)
    q += x.key_dim;
    k = next;
    v += x.v_stride;
  }
  const VF decay = hn::Set(d, x.decay[last]);
  const VF beta = hn::Set(d, x.beta[last]);
  HF_REPEAT_8(HF_DELTA)
  HF_REPEAT_8(HF_OUT_ZERO)
  for (int i = 0; i < x.key_dim; ++i) {
    const int at = i * kStripe;
    const VF key = hn::Set(d, k[i]);
    const VF query = hn::Set(d, q[i]);
    HF_REPEAT_8(HF_STEP)
    PrefetchHalf<kVectors>(x, ahead + at + kStripe / 2);
  }
  HF_REPEAT_8(HF_OUT_STORE)
}

template <int kVectors>
HWY_INLINE void RecurVectors(GdnStripes x, int group) {
  const std::ptrdiff_t stripe =
      static_cast<std::ptrdiff_t>(x.key_dim) * kStripe;
  if (x.from_zero) {
    std::memset(x.state, 0, sizeof(float) * stripe * x.stripes);
  }
  for (; x.stripes >= group; x.stripes -= group) {
    const float* ahead = x.state;  // in the cache: nothing is fetched
    if (x.stripes >= 2 * group) {
      ahead = x.state + group * stripe;
    } else if (x.next != nullptr) {
      ahead = x.next;
    }
    RecurRows<kVectors>(x, ahead);
    x.state += group * stripe;
    x.v += group * kStripe;
  }
}

void GdnRecur(const GdnStripes& x) {
#if HWY_HAVE_SCALABLE
  switch (LaneCount()) {
    case 16:
      return RecurVectors<2>(x, 1);
    case 8:
      return RecurVectors<4>(x, 1);
    default:
      return RecurVectors<8>(x, 1);
  }
#else
  constexpr int kVectors = kStripe / hn::MaxLanes(DF());
  if (x.stripes % kGdnStripes == 0) {
    return RecurVectors<kGdnStripes * kVectors>(x, kGdnStripes);
  }
  RecurVectors<kVectors>(x, 1);
#endif
}

#undef HF_STATE
#undef HF_READ_ZERO
#undef HF_READ_CLEAR
#undef HF_OUT_ZERO
#undef HF_OUT_STORE
#undef HF_DELTA
#undef HF_READ
#undef HF_STEP
#undef HF_STEP_AND_READ

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
