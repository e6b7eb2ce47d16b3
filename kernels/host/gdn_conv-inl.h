// Causal convolution of one head's channels, silu and the norm of q and k;
// included once per target.
#if defined(HOLDFAST_KERNELS_HOST_GDN_CONV_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_GDN_CONV_INL_H_
#undef HOLDFAST_KERNELS_HOST_GDN_CONV_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_GDN_CONV_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

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
inline constexpr int kMostHeadDim = 256;
// Rows whose rounded inputs stay in the first-level cache.
inline constexpr int kConvRows = 16;
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

HWY_INLINE void LoadTail(const GdnConvHead& head, float* rows) {
  const DF d;
  const int step = LaneCount();
  for (int r = 0; r < kConvTail; ++r, rows += head.dims) {
    if (head.from_zero) {
      std::memset(rows, 0, head.dims * sizeof(float));
    } else if (head.state_type == StateType::kF32) {
      std::memcpy(rows, head.tail + r * head.channels * sizeof(float),
                  head.dims * sizeof(float));
    } else {
      const std::byte* from = head.tail + r * head.channels * 2;
      for (int c = 0; c < head.dims; c += step) {
        hn::StoreU(LoadBf16(from + c * 2), d, rows + c);
      }
    }
  }
}

// The numbers are rounded already.
HWY_INLINE void StoreTail(const GdnConvHead& head, const float* rows) {
  const DF d;
  const DU du;
  const hn::Rebind<std::uint16_t, DF> d16;
  const int step = LaneCount();
  for (int r = 0; r < kConvTail; ++r, rows += head.dims) {
    if (head.state_type == StateType::kF32) {
      std::memcpy(head.tail + r * head.channels * sizeof(float), rows,
                  head.dims * sizeof(float));
      continue;
    }
    auto* to =
        reinterpret_cast<std::uint16_t*>(head.tail + r * head.channels * 2);
    for (int c = 0; c < head.dims; c += step) {
      const auto bits = hn::BitCast(du, hn::LoadU(d, rows + c));
      hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(bits)), d16, to + c);
    }
  }
}

HWY_INLINE void LoadRounded(const GdnConvHead& head, const float* in,
                            float* row) {
  const DF d;
  const int step = LaneCount();
  if (head.state_type == StateType::kF32) {
    std::memcpy(row, in, head.dims * sizeof(float));
    return;
  }
  for (int c = 0; c < head.dims; c += step) {
    hn::StoreU(RoundToBf16(hn::LoadU(d, in + c)), d, row + c);
  }
}

// `rows` points to the oldest of the kConvTaps rows.
HWY_INLINE void ConvRow(const GdnConvHead& head, const float* HWY_RESTRICT rows,
                        float* HWY_RESTRICT out) {
  const DF d;
  const int step = LaneCount();
  const int dims = head.dims;
  for (int c = 0; c < dims; c += step) {
    const float* w = head.weights + c;
    VF sum = hn::Mul(hn::LoadU(d, w), hn::LoadU(d, rows + c));
    for (int tap = 1; tap < kConvTaps; ++tap) {
      sum = hn::MulAdd(hn::LoadU(d, w + tap * head.channels),
                       hn::LoadU(d, rows + tap * dims + c), sum);
    }
    hn::StoreU(Silu(sum), d, out + c);
  }
  if (!head.normalise) return;
  const VF length = hn::Set(d, 1.0f / std::sqrt(SquareSum(out, dims) + kL2Eps));
  const VF scale = hn::Set(d, head.scale);
  for (int c = 0; c < dims; c += step) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, out + c), length), scale), d,
               out + c);
  }
}

void GdnConv(const GdnConvHead& head) {
  alignas(64) float rows[(kConvTail + kConvRows) * kMostHeadDim];
  const int dims = head.dims;
  LoadTail(head, rows);
  for (int first = 0; first < head.rows; first += kConvRows) {
    const int count =
        head.rows - first < kConvRows ? head.rows - first : kConvRows;
    for (int r = 0; r < count; ++r) {
      LoadRounded(head, head.in + (first + r) * head.in_stride,
                  rows + (kConvTail + r) * dims);
    }
    for (int r = 0; r < count; ++r) {
      ConvRow(head, rows + r * dims,
              head.out + static_cast<std::ptrdiff_t>(first + r) * dims);
    }
    std::memmove(rows, rows + count * dims, kConvTail * dims * sizeof(float));
  }
  StoreTail(head, rows);
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
