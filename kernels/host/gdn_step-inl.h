// One row's step of the gated delta rule over the states of many heads;
// included once per target.
//
// A single row needs two passes over each stripe: what it reads of the old
// state goes into what it writes. Here the second pass over one piece of the
// state runs together with the first over the next, so that memory brings
// numbers all the time while the processor has enough independent sums. Each
// number is computed as in gdn_recurrence-inl.h.
#if defined(HOLDFAST_KERNELS_HOST_GDN_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_GDN_STEP_INL_H_
#undef HOLDFAST_KERNELS_HOST_GDN_STEP_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_GDN_STEP_INL_H_
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

// How many floats ahead of its first use the state is fetched.
inline constexpr std::ptrdiff_t kStepFetch = 32 * kStripe;

// A few columns of one head's state: a stripe or a half.
struct StepPiece {
  float* state;  // rows kStripe apart
  const float* q;
  const float* k;
  float* v;
  float beta;
  float decay;
};

HWY_INLINE StepPiece PieceOf(const GdnStep& x, int columns, int index) {
  const int in_head = x.value_dim / columns;
  const int head = index / in_head;
  const int column = index % in_head * columns;
  const std::ptrdiff_t key =
      static_cast<std::ptrdiff_t>(x.key_dim) * (head / x.heads_of_key);
  const std::ptrdiff_t stripe =
      static_cast<std::ptrdiff_t>(x.key_dim) * kStripe;
  const std::int64_t gate = head * x.gate_stride;
  return {x.state +
              head * x.key_dim * static_cast<std::ptrdiff_t>(x.value_dim) +
              column / kStripe * stripe + column % kStripe,
          x.q + key,
          x.k + key,
          x.v + static_cast<std::ptrdiff_t>(head) * x.value_dim + column,
          x.beta[gate],
          x.decay[gate]};
}

// Brings a row of a stripe or of half of one into the cache.
HWY_INLINE void FetchRow(const float* row, int columns) {
  hwy::Prefetch(row);
  if (columns == kStripe) hwy::Prefetch(row + kStripe / 2);
}

#define HF_ZERO(j)                           \
  [[maybe_unused]] VF read##j = hn::Zero(d); \
  [[maybe_unused]] VF next_read##j = hn::Zero(d);
#define HF_CLEAR(j)                         \
  [[maybe_unused]] VF out##j = hn::Zero(d); \
  next_read##j = hn::Zero(d);
#define HF_DELTA(j)                                             \
  [[maybe_unused]] VF u##j = hn::Zero(d);                       \
  if constexpr (kVectors > j) {                                 \
    const VF value = hn::LoadU(d, piece.v + j * lanes);         \
    u##j = hn::Mul(beta, hn::NegMulAdd(decay, read##j, value)); \
  }
// The old state's product with k.
#define HF_READ(j)                                                            \
  if constexpr (kVectors > j) {                                               \
    next_read##j = hn::MulAdd(next_key, hn::LoadU(d, ahead + at + j * lanes), \
                              next_read##j);                                  \
  }
// The next state and its product with q.
#define HF_STEP(j)                                                       \
  if constexpr (kVectors > j) {                                          \
    const VF old = hn::Mul(decay, hn::LoadU(d, state + at + j * lanes)); \
    const VF renewed = hn::MulAdd(key, u##j, old);                       \
    hn::StoreU(renewed, d, state + at + j * lanes);                      \
    out##j = hn::MulAdd(query, renewed, out##j);                         \
  }
#define HF_STORE(j) \
  if constexpr (kVectors > j) hn::StoreU(out##j, d, piece.v + j * lanes);
#define HF_ADVANCE(j) read##j = next_read##j;

template <int kVectors>
HWY_INLINE void StepPieces(const GdnStep& x) {
  const DF d;
  const int lanes = LaneCount();
  const int columns = kVectors * lanes;
  const int pieces = x.heads * (x.value_dim / columns);
  StepPiece piece = PieceOf(x, columns, 0);
  HF_REPEAT_4(HF_ZERO) {
    const float* HWY_RESTRICT ahead = piece.state;
    const std::ptrdiff_t fetch = pieces > 1 ? kStepFetch : 0;
    for (int i = 0; i < x.key_dim; ++i) {
      const int at = i * kStripe;
      FetchRow(ahead + at + fetch, columns);
      const VF next_key = hn::Set(d, piece.k[i]);
      HF_REPEAT_4(HF_READ)
    }
    HF_REPEAT_4(HF_ADVANCE)
  }
  for (int p = 1; p <= pieces; ++p) {
    const VF beta = hn::Set(d, piece.beta);
    const VF decay = hn::Set(d, piece.decay);
    HF_REPEAT_4(HF_DELTA)
    HF_REPEAT_4(HF_CLEAR)
    float* HWY_RESTRICT state = piece.state;
    const float* HWY_RESTRICT q = piece.q;
    const float* HWY_RESTRICT k = piece.k;
    if (p < pieces) {
      const StepPiece next = PieceOf(x, columns, p);
      const float* HWY_RESTRICT ahead = next.state;
      const float* HWY_RESTRICT next_k = next.k;
      // What follows the last piece may be another thread's.
      const std::ptrdiff_t fetch = p + 1 < pieces ? kStepFetch : 0;
      for (int i = 0; i < x.key_dim; ++i) {
        const int at = i * kStripe;
        FetchRow(ahead + at + fetch, columns);
        const VF key = hn::Set(d, k[i]);
        const VF query = hn::Set(d, q[i]);
        const VF next_key = hn::Set(d, next_k[i]);
        HF_REPEAT_4(HF_STEP)
        HF_REPEAT_4(HF_READ)
      }
      HF_REPEAT_4(HF_STORE)
      piece = next;
    } else {
      for (int i = 0; i < x.key_dim; ++i) {
        const int at = i * kStripe;
        const VF key = hn::Set(d, k[i]);
        const VF query = hn::Set(d, q[i]);
        HF_REPEAT_4(HF_STEP)
      }
      HF_REPEAT_4(HF_STORE)
    }
    HF_REPEAT_4(HF_ADVANCE)
  }
}

#undef HF_ZERO
#undef HF_CLEAR
#undef HF_DELTA
#undef HF_READ
#undef HF_STEP
#undef HF_STORE
#undef HF_ADVANCE

void GdnStepRow(const GdnStep& x) {
  if (x.from_zero) {
    std::memset(x.state, 0, sizeof(float) * x.heads * x.key_dim * x.value_dim);
  }
#if HWY_HAVE_SCALABLE
  if (LaneCount() >= 8) return StepPieces<2>(x);
  StepPieces<4>(x);
#else
  // Two chains of sums for each pass are enough where there are two units for
  // fused operations; more would not fit the registers of AVX2.
  StepPieces<HWY_MAX_BYTES >= 32 ? 2 : 4>(x);
#endif
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
