// Causal convolution of heads' channels, silu and the norm of q and k;
// included once per target.
#if defined(HOLDFAST_KERNELS_HOST_GDN_CONV_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_GDN_CONV_INL_H_
#undef HOLDFAST_KERNELS_HOST_GDN_CONV_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_GDN_CONV_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/host/gdn_kernels.h"
#include "kernels/host/square_sum-inl.h"
#include "kernels/host/vector_math-inl.h"
#include "kernels/host/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

inline constexpr int kConvTail = kConvTaps - 1;
// Rows that are convolved, then normalised, while they are in the first-level
// cache.
inline constexpr int kConvRows = kVirtualLanes;
// Of q and k; added to the sum of squares.
inline constexpr float kL2Eps = 1e-6f;

// As FloatToBf16 and back.
HWY_INLINE VF RoundToBf16(VF x) {
  const DF d;
  const DU du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto up = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const VF rounded = hn::IfThenElse(
      hn::IsNaN(x), hn::BitCast(d, hn::Or(bits, hn::Set(du, 0x400000u))),
      hn::BitCast(d, up));
  return hn::And(rounded, hn::BitCast(d, hn::Set(du, 0xffff0000u)));
}

template <StateType kState>
HWY_INLINE VF RoundedInput(const float* in) {
  const VF x = hn::LoadU(DF(), in);
  return kState == StateType::kBF16 ? RoundToBf16(x) : x;
}

// Number `index` of the tail on.
template <StateType kState>
HWY_INLINE VF LoadTail(const std::byte* tail, std::int64_t index) {
  if constexpr (kState == StateType::kBF16) {
    return LoadBf16(tail + index * 2);
  } else {
    return hn::LoadU(DF(), reinterpret_cast<const float*>(tail) + index);
  }
}

// The numbers are rounded already.
template <StateType kState>
HWY_INLINE void StoreTail(VF x, std::byte* tail, std::int64_t index) {
  const DF d;
  if constexpr (kState == StateType::kBF16) {
    const hn::Rebind<std::uint16_t, DF> d16;
    const auto bits = hn::ShiftRight<16>(hn::BitCast(DU(), x));
    hn::StoreU(hn::TruncateTo(d16, bits), d16,
               reinterpret_cast<std::uint16_t*>(tail) + index);
  } else {
    hn::StoreU(x, d, reinterpret_cast<float*>(tail) + index);
  }
}

// `rows` rows from `first` on of a vector of channels, from column c on. The
// tail holds the inputs before them, and then their last.
template <StateType kState>
HWY_INLINE void ConvColumns(const GdnConvHeads& heads, int first, int rows,
                            int c) {
  const DF d;
  const float* w = heads.weights + c;
  const VF w0 = hn::LoadU(d, w);
  const VF w1 = hn::LoadU(d, w + heads.channels);
  const VF w2 = hn::LoadU(d, w + 2 * heads.channels);
  const VF w3 = hn::LoadU(d, w + 3 * heads.channels);
  VF x0 = hn::Zero(d);
  VF x1 = hn::Zero(d);
  VF x2 = hn::Zero(d);
  if (first > 0 || !heads.from_zero) {
    x0 = LoadTail<kState>(heads.tail, c);
    x1 = LoadTail<kState>(heads.tail, heads.channels + c);
    x2 = LoadTail<kState>(heads.tail, 2 * heads.channels + c);
  }
  const float* in = heads.in + first * heads.in_stride + c;
  float* out = heads.out + static_cast<std::ptrdiff_t>(first) * heads.dims + c;
  // Rows are far apart in memory; those of the next group are fetched here.
  const std::int64_t ahead =
      heads.rows - first >= 2 * kConvRows ? kConvRows * heads.in_stride : 0;
  for (int r = 0; r < rows; ++r) {
    hwy::Prefetch(in + ahead);
    const VF x3 = RoundedInput<kState>(in);
    VF sum = hn::Mul(w0, x0);
    sum = hn::MulAdd(w1, x1, sum);
    sum = hn::MulAdd(w2, x2, sum);
    sum = hn::MulAdd(w3, x3, sum);
    hn::StoreU(Silu(sum), d, out);
    x0 = x1;
    x1 = x2;
    x2 = x3;
    in += heads.in_stride;
    out += heads.dims;
  }
  StoreTail<kState>(x0, heads.tail, c);
  StoreTail<kState>(x1, heads.tail, heads.channels + c);
  StoreTail<kState>(x2, heads.tail, 2 * heads.channels + c);
}

// Normalises `count` heads that lie one after the other.
HWY_INLINE void L2Normalise(const GdnConvHeads& heads, int count, float* x) {
  const DF d;
  const int step = LaneCount();
  const int dims = heads.norm_dims;
  const VF after = hn::Set(d, heads.scale);
  for (int first = 0; first < count; first += kVirtualLanes) {
    const int rest = count - first;
    const int some = rest < kVirtualLanes ? rest : kVirtualLanes;
    float scales[kVirtualLanes];
    InverseNorms(x, some, dims, 1.0f, kL2Eps, scales);
    for (int i = 0; i < some; ++i, x += dims) {
      const VF scale = hn::Set(d, scales[i]);
      for (int c = 0; c < dims; c += step) {
        hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + c), scale), after), d,
                   x + c);
      }
    }
  }
}

template <StateType kState>
HWY_INLINE void ConvRows(const GdnConvHeads& heads) {
  const int step = LaneCount();
  for (int first = 0; first < heads.rows; first += kConvRows) {
    const int rest = heads.rows - first;
    const int rows = rest < kConvRows ? rest : kConvRows;
    for (int c = 0; c < heads.dims; c += step) {
      ConvColumns<kState>(heads, first, rows, c);
    }
    if (heads.norm_dims > 0) {
      L2Normalise(heads, rows * (heads.dims / heads.norm_dims),
                  heads.out + static_cast<std::ptrdiff_t>(first) * heads.dims);
    }
  }
}

void GdnConv(const GdnConvHeads& heads) {
  if (heads.state_type == StateType::kBF16) {
    ConvRows<StateType::kBF16>(heads);
  } else {
    ConvRows<StateType::kF32>(heads);
  }
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
