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

// Scale and, of Q4_1, minimum of the columns of a block from `column` of its
// `width`.
HWY_INLINE VF LoadScale(const std::byte* block, int column) {
  return LoadF16(block + column * 2);
}
template <WeightType kType>
HWY_INLINE VF LoadMinimum(const std::byte* block, int width, int column) {
  if constexpr (kType == WeightType::kQ4_1) {
    return LoadF16(block + (width + column) * 2);
  } else {
    return hn::Zero(DF());
  }
}

// A quantised number's value, as ARITHMETIC.md defines it.
template <WeightType kType>
HWY_INLINE VF Dequantise(VF q, VF scale, VF minimum) {
  if constexpr (kType == WeightType::kQ4_1) {
    return hn::MulAdd(q, scale, minimum);
  } else if constexpr (kType == WeightType::kQ4_0) {
    return hn::Mul(hn::Sub(q, hn::Set(DF(), 8.0f)), scale);
  } else {
    return hn::Mul(q, scale);
  }
}

// The integers at k = 2 pair and 2 pair + 1 of a block, as floats.
template <WeightType kType>
HWY_INLINE void LoadPair(const std::byte* block, int width, int pair,
                         int column, VF& even, VF& odd) {
  const DF d;
  const DI di;
  const std::byte* values = block + QuantHeaderBytes(kType) * width;
  if constexpr (kType == WeightType::kQ8_0) {
    const hn::Rebind<std::int8_t, DF> d8;
    const auto* p = reinterpret_cast<const std::int8_t*>(values) +
                    2 * pair * width + column;
    even = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, p)));
    odd = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, p + width)));
  } else {
    const hn::Rebind<std::uint8_t, DF> d8;
    const auto* p =
        reinterpret_cast<const std::uint8_t*>(values) + pair * width + column;
    const auto bits = hn::PromoteTo(di, hn::LoadU(d8, p));
    even = hn::ConvertTo(d, hn::And(bits, hn::Set(di, 15)));
    odd = hn::ConvertTo(d, hn::ShiftRight<4>(bits));
  }
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
