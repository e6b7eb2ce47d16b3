// Numbers of a panel as float vectors; included once per target.
#if defined(HOLDFAST_KERNELS_HOST_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_WIDEN_INL_H_
#undef HOLDFAST_KERNELS_HOST_WIDEN_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_WIDEN_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/host/packed_matrix.h"
#include "kernels/host/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

HWY_INLINE VF LoadF16(const std::byte* p) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  return hn::PromoteTo(
      DF(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
}

HWY_INLINE VF LoadBf16(const std::byte* p) {
  const DU du;
  const hn::Rebind<std::uint16_t, DF> d16;
  const auto bits = hn::PromoteTo(
      du, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
  return hn::BitCast(DF(), hn::ShiftLeft<16>(bits));
}

// Numbers [0, 2 lanes) from `p`: those at even places and those at odd ones,
// which takes one load and no shuffle.
HWY_INLINE void LoadBf16Pair(const std::byte* p, VF& even, VF& odd) {
  const DF d;
  const DU du;
  const auto pairs = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(p));
  even = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
  odd = hn::BitCast(d, hn::And(pairs, hn::Set(du, 0xffff0000u)));
}

// Numbers at row k, from column `column`, of an unquantised panel.
template <WeightType kType>
HWY_INLINE VF LoadPlain(const std::byte* panel, std::int64_t k, int column) {
  const std::int64_t index = k * kPanelColumns + column;
  if constexpr (kType == WeightType::kF32) {
    return hn::LoadU(DF(), reinterpret_cast<const float*>(panel) + index);
  } else if constexpr (kType == WeightType::kF16) {
    return LoadF16(panel + index * 2);
  } else {
    return LoadBf16(panel + index * 2);
  }
}

// Numbers at row k, of columns [column, column + 2 lanes): for bf16 as
// LoadBf16Pair orders them, otherwise the first and the second half.
template <WeightType kType>
HWY_INLINE void LoadPlainPair(const std::byte* panel, std::int64_t k,
                              int column, VF& first, VF& second) {
  if constexpr (kType == WeightType::kBF16) {
    LoadBf16Pair(panel + (k * kPanelColumns + column) * 2, first, second);
  } else {
    first = LoadPlain<kType>(panel, k, column);
    second = LoadPlain<kType>(panel, k, column + LaneCount());
  }
}

// Stores what was computed from a pair of LoadPlainPair in the columns' order.
template <WeightType kType>
HWY_INLINE void StorePlainPair(VF first, VF second, float* to) {
  const DF d;
  if constexpr (kType == WeightType::kBF16) {
    hn::StoreInterleaved2(first, second, d, to);
  } else {
    hn::StoreU(first, d, to);
    hn::StoreU(second, d, to + LaneCount());
  }
}

// Bytes from `p`, one a lane, as 32-bit integers.
template <typename Byte>
HWY_INLINE hn::Vec<DI> LoadBytes(const std::byte* p) {
  const hn::Rebind<Byte, DF> d8;
  return hn::PromoteTo(DI(), hn::LoadU(d8, reinterpret_cast<const Byte*>(p)));
}

// The 6-bit scale or minimum of a group of Q4_K and Q5_K. `bytes` are the
// file's 12: those of the first four groups fill the low bits of bytes 0 to 3
// and 4 to 7; of the last four, bytes 8 to 11 hold the low halves and bytes 0
// to 7 two bits each.
HWY_INLINE VF LoadSixBits(const std::byte* bytes, int width, int group,
                          bool minimum) {
  const DI di;
  const auto at = [=](int i) HWY_ATTR {
    return LoadBytes<std::uint8_t>(bytes + i * width);
  };
  const int first = minimum ? group + 4 : group;
  if (group < 4)
    return hn::ConvertTo(DF(), hn::And(at(first), hn::Set(di, 63)));
  const auto both = at(group + 4);
  const auto low =
      minimum ? hn::ShiftRight<4>(both) : hn::And(both, hn::Set(di, 15));
  const auto high = hn::ShiftLeft<4>(hn::ShiftRight<6>(at(first - 4)));
  return hn::ConvertTo(DF(), hn::Or(low, high));
}

// Scale and minimum of a group of a block, of the columns from `column`.
template <WeightType kType>
HWY_INLINE VF LoadScale(const std::byte* block, int width, int column,
                        int group) {
  constexpr bool kSixBits =
      kType == WeightType::kQ4_K || kType == WeightType::kQ5_K;
  if constexpr (kType == WeightType::kF8E4M3) {
    // Times 256, by which LoadPair's numbers are too small: exact.
    const auto* scales = reinterpret_cast<const float*>(block);
    return hn::Mul(hn::LoadU(DF(), scales + column), hn::Set(DF(), 256.0f));
  } else if constexpr (kSixBits) {
    return hn::Mul(
        LoadF16(block + column * 2),
        LoadSixBits(block + 4 * width + column, width, group, false));
  } else if constexpr (kType == WeightType::kQ6_K) {
    const auto scale =
        LoadBytes<std::int8_t>(block + (2 + group) * width + column);
    return hn::Mul(LoadF16(block + column * 2), hn::ConvertTo(DF(), scale));
  } else {
    return LoadF16(block + column * 2);
  }
}
template <WeightType kType>
HWY_INLINE VF LoadMinimum(const std::byte* block, int width, int column,
                          int group) {
  if constexpr (!HasMinimum(kType)) {
    return hn::Zero(DF());
  } else {
    const VF minimum = LoadF16(block + (width + column) * 2);
    if constexpr (FormatOf(kType).block == 32) {
      return minimum;
    } else {
      return hn::Neg(hn::Mul(minimum, LoadSixBits(block + 4 * width + column,
                                                  width, group, true)));
    }
  }
}

// What a type's integers are stored above.
constexpr float OffsetOf(WeightType type) {
  if (type == WeightType::kQ4_0) return 8.0f;
  if (type == WeightType::kQ5_0) return 16.0f;
  return type == WeightType::kQ6_K ? 32.0f : 0.0f;
}

// A quantised number's value, as ARITHMETIC.md defines it.
template <WeightType kType>
HWY_INLINE VF Dequantise(VF q, VF scale, VF minimum) {
  constexpr float kOffset = OffsetOf(kType);
  if constexpr (HasMinimum(kType)) {
    return hn::MulAdd(q, scale, minimum);
  } else if constexpr (kOffset != 0) {
    return hn::Mul(hn::Sub(q, hn::Set(DF(), kOffset)), scale);
  } else {
    return hn::Mul(q, scale);
  }
}

// A number of F8_E4M3 / 256: its bits, moved, are that number as f16.
HWY_INLINE VF LoadE4M3(const std::byte* p) {
  const hn::Rebind<std::int8_t, DF> d8;
  const hn::Rebind<std::int16_t, DF> di16;
  const hn::Rebind<hwy::float16_t, DF> d16;
  const auto bits = hn::PromoteTo(
      di16, hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(p)));
  // The sign comes twice: as bit 15, and as bit 14, which must be zero.
  const auto half = hn::And(hn::ShiftLeft<7>(bits),
                            hn::Set(di16, static_cast<std::int16_t>(0xbfff)));
  return hn::PromoteTo(DF(), hn::BitCast(d16, half));
}

// Where the numbers of a block's group start.
template <WeightType kType>
HWY_INLINE const std::byte* GroupValues(const std::byte* block, int width,
                                        int group) {
  return block +
         (FormatOf(kType).header_bytes + group * QuantGroupBytes(kType)) *
             width;
}

// The integers at k = 2 pair and 2 pair + 1 of a group, as floats.
template <WeightType kType>
HWY_INLINE void LoadPair(const std::byte* values, int width, int pair,
                         int column, VF& even, VF& odd) {
  const DF d;
  const DI di;
  constexpr QuantFormat kFormat = FormatOf(kType);
  if constexpr (kType == WeightType::kF8E4M3) {
    even = LoadE4M3(values + 2 * pair * width + column);
    odd = LoadE4M3(values + (2 * pair + 1) * width + column);
  } else if constexpr (!kFormat.nibbles) {
    const std::byte* p = values + 2 * pair * width + column;
    even = hn::ConvertTo(d, LoadBytes<std::int8_t>(p));
    odd = hn::ConvertTo(d, LoadBytes<std::int8_t>(p + width));
  } else if constexpr (kFormat.high_bits == 0) {
    const auto bits = LoadBytes<std::uint8_t>(values + pair * width + column);
    even = hn::ConvertTo(d, hn::And(bits, hn::Set(di, 15)));
    odd = hn::ConvertTo(d, hn::ShiftRight<4>(bits));
  } else {
    constexpr int kBits = kFormat.high_bits;
    constexpr int kPairsInByte = 4 / kBits;
    constexpr int kHighRows = kFormat.group * kBits / 8;
    const auto low =
        LoadBytes<std::uint8_t>(values + (kHighRows + pair) * width + column);
    const auto packed = hn::ShiftRightSame(
        LoadBytes<std::uint8_t>(values + pair / kPairsInByte * width + column),
        pair % kPairsInByte * 2 * kBits);
    const auto mask = hn::Set(di, ((1 << kBits) - 1) << 4);
    const auto high_even = hn::And(hn::ShiftLeft<4>(packed), mask);
    const auto high_odd = hn::And(hn::ShiftLeft<4 - kBits>(packed), mask);
    even = hn::ConvertTo(d, hn::Or(hn::And(low, hn::Set(di, 15)), high_even));
    odd = hn::ConvertTo(d, hn::Or(hn::ShiftRight<4>(low), high_odd));
  }
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
