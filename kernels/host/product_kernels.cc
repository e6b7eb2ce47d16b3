// Products with packed panels, of few rows (product_few-inl.h) and of many
// (product_tile-inl.h).
#include "kernels/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/product_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/host/kernel_tables.h"
#include "kernels/host/product_few-inl.h"
#include "kernels/host/product_tile-inl.h"
#include "kernels/host/vector_math-inl.h"
#include "kernels/host/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

void Few(const ProductFew& few) {
  switch (few.panels[0].type) {
#define HF_TYPE(type)    \
  case WeightType::type: \
    return FewOfType<WeightType::type, kFewRows>(few);
    HF_EVERY_WEIGHT_TYPE(HF_TYPE)
#undef HF_TYPE
  }
}

// Widening 32 columns to take one of them: embedding rows are few.
template <WeightType kType>
void ColumnOfType(const Panel& panel, int column, std::int64_t cols,
                  float* out) {
  const DF d;
  const int lanes = LaneCount();
  const int base = column / lanes * lanes;
  float vector[kVirtualLanes];
  if constexpr (IsQuantised(kType)) {
    const std::byte* block = panel.data;
    const int at = panel.column + base;
    constexpr QuantFormat kFormat = FormatOf(kType);
    int group = 0;
    for (std::int64_t k0 = 0; k0 < cols; k0 += kFormat.group) {
      const VF scale = LoadScale<kType>(block, panel.width, at, group);
      const VF minimum = LoadMinimum<kType>(block, panel.width, at, group);
      const std::byte* values = GroupValues<kType>(block, panel.width, group);
      for (int pair = 0; pair < kFormat.group / 2; ++pair) {
        VF even, odd;
        LoadPair<kType>(values, panel.width, pair, at, even, odd);
        hn::StoreU(Dequantise<kType>(even, scale, minimum), d, vector);
        out[k0 + 2 * pair] = vector[column - base];
        hn::StoreU(Dequantise<kType>(odd, scale, minimum), d, vector);
        out[k0 + 2 * pair + 1] = vector[column - base];
      }
      if (++group == kFormat.block / kFormat.group) {
        group = 0;
        block += QuantBlockBytes(kType) * panel.width;
      }
    }
  } else {
    for (std::int64_t k = 0; k < cols; ++k) {
      hn::StoreU(LoadPlain<kType>(panel.data, k, base), d, vector);
      out[k] = vector[column - base];
    }
  }
}

void Column(const Panel& panel, int column, std::int64_t cols, float* out) {
  switch (panel.type) {
#define HF_TYPE(type)    \
  case WeightType::type: \
    return ColumnOfType<WeightType::type>(panel, column, cols, out);
    HF_EVERY_WEIGHT_TYPE(HF_TYPE)
#undef HF_TYPE
  }
}

void WidenPanel(const Panel& panel, std::int64_t k_start, int k_count,
                float* out) {
  switch (panel.type) {
#define HF_TYPE(type)    \
  case WeightType::type: \
    return WidenPanelOfType<WeightType::type>(panel, k_start, k_count, out);
    HF_EVERY_WEIGHT_TYPE(HF_TYPE)
#undef HF_TYPE
  }
}

const ProductKernels* GetProductKernels() {
  static constexpr ProductKernels kTable = {
      kFewRows, kRowTile, &Few, &WidenPanel, &MultiplyBlock, &Column};
  return &kTable;
}

#else

const ProductKernels* GetProductKernels() { return nullptr; }

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(GetProductKernels);

const ProductKernels* ChooseProductKernels() {
  return HWY_DYNAMIC_DISPATCH(GetProductKernels)();
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
