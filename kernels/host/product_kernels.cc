// Products with packed panels: of few rows, where every weight is widened in
// registers, and of many (product_tile-inl.h).
#include "kernels/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/product_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include <cstring>

#include "kernels/host/kernel_tables.h"
#include "kernels/host/product_tile-inl.h"
#include "kernels/host/repeat.h"
#include "kernels/host/vector_math-inl.h"
#include "kernels/host/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

// Rows whose accumulators fit the registers beside the weights.
#if HWY_TARGET == HWY_AVX2
inline constexpr int kFewRows = 4;
#else
inline constexpr int kFewRows = 8;
#endif

// Accumulators of a register tile: row r has c0_r and c1_r.
#define HF_DECLARE(r)         \
  VF c0_##r = hn::Zero(DF()); \
  VF c1_##r = hn::Zero(DF()); \
  static_cast<void>(c0_##r);  \
  static_cast<void>(c1_##r);
#define HF_ACCUMULATE(r)                             \
  if constexpr (kRows > r) {                         \
    const VF a = hn::Set(DF(), x[r * x_stride + k]); \
    c0_##r = hn::MulAdd(a, w0, c0_##r);              \
    c1_##r = hn::MulAdd(a, w1, c1_##r);              \
  }
#define HF_STORE(r)                                         \
  if constexpr (kRows > r) {                                \
    hn::StoreU(c0_##r, DF(), out + r * out_stride);         \
    hn::StoreU(c1_##r, DF(), out + r * out_stride + lanes); \
  }

// Columns [column, column + 2 vectors) of kRows rows.
template <WeightType kType, int kRows>
void FewColumns(const std::byte* panel, int column, std::int64_t cols,
                const float* HWY_RESTRICT x, std::int64_t x_stride,
                float* HWY_RESTRICT out, std::int64_t out_stride) {
  const int lanes = LaneCount();
  HF_REPEAT_8(HF_DECLARE)
  if constexpr (IsQuantised(kType)) {
    for (std::int64_t k0 = 0; k0 < cols; k0 += kQuantBlock) {
      const std::byte* block = panel + PanelBytes(kType, k0);
      const VF scale0 = LoadF16(block + column * 2);
      const VF scale1 = LoadF16(block + (column + lanes) * 2);
      const VF minimum0 = LoadMinimum<kType>(block, column);
      const VF minimum1 = LoadMinimum<kType>(block, column + lanes);
      const std::byte* values = block + QuantHeaderBytes(kType);
      for (int pair = 0; pair < kQuantBlock / 2; ++pair) {
        VF even0, odd0, even1, odd1;
        LoadPair<kType>(values, pair, column, even0, odd0);
        LoadPair<kType>(values, pair, column + lanes, even1, odd1);
        {
          const std::int64_t k = k0 + 2 * pair;
          const VF w0 = Dequantise<kType>(even0, scale0, minimum0);
          const VF w1 = Dequantise<kType>(even1, scale1, minimum1);
          HF_REPEAT_8(HF_ACCUMULATE)
        }
        {
          const std::int64_t k = k0 + 2 * pair + 1;
          const VF w0 = Dequantise<kType>(odd0, scale0, minimum0);
          const VF w1 = Dequantise<kType>(odd1, scale1, minimum1);
          HF_REPEAT_8(HF_ACCUMULATE)
        }
      }
    }
  } else {
    for (std::int64_t k = 0; k < cols; ++k) {
      const VF w0 = LoadPlain<kType>(panel, k, column);
      const VF w1 = LoadPlain<kType>(panel, k, column + lanes);
      HF_REPEAT_8(HF_ACCUMULATE)
    }
  }
  HF_REPEAT_8(HF_STORE)
}

#undef HF_DECLARE
#undef HF_ACCUMULATE
#undef HF_STORE

void AddBias(const float* bias, int rows, int columns, float* out,
             std::int64_t out_stride) {
  for (int r = 0; r < rows; ++r) {
    for (int n = 0; n < columns; ++n) out[r * out_stride + n] += bias[n];
  }
}

template <WeightType kType, int kRows>
void FewPanel(const Panel& panel, std::int64_t cols, const float* x,
              std::int64_t x_stride, const float* bias, float* out,
              std::int64_t out_stride) {
  // A partial panel's padding columns have no place in the output.
  const bool whole = panel.columns == kPanelColumns;
  float staging[kRows * kPanelColumns];
  float* target = whole ? out : staging;
  const std::int64_t stride = whole ? out_stride : kPanelColumns;
  const int step = 2 * LaneCount();
  for (int column = 0; column < kPanelColumns; column += step) {
    FewColumns<kType, kRows>(panel.data, column, cols, x, x_stride,
                             target + column, stride);
  }
  if (!whole) {
    for (int r = 0; r < kRows; ++r) {
      std::memcpy(out + r * out_stride, staging + r * kPanelColumns,
                  panel.columns * sizeof(float));
    }
  }
  if (bias != nullptr) AddBias(bias, kRows, panel.columns, out, out_stride);
}

template <WeightType kType, int kRows>
void FewOfType(const Panel& panel, std::int64_t cols, const float* x,
               std::int64_t x_stride, int rows, const float* bias, float* out,
               std::int64_t out_stride) {
  if (rows == kRows) {
    FewPanel<kType, kRows>(panel, cols, x, x_stride, bias, out, out_stride);
  } else if constexpr (kRows > 1) {
    FewOfType<kType, kRows - 1>(panel, cols, x, x_stride, rows, bias, out,
                                out_stride);
  }
}

void Few(const Panel& panel, std::int64_t cols, const float* x,
         std::int64_t x_stride, int rows, const float* bias, float* out,
         std::int64_t out_stride) {
  switch (panel.type) {
#define HF_TYPE(type)                                                      \
  case WeightType::type:                                                   \
    return FewOfType<WeightType::type, kFewRows>(panel, cols, x, x_stride, \
                                                 rows, bias, out, out_stride);
    HF_TYPE(kF32)
    HF_TYPE(kF16)
    HF_TYPE(kBF16)
    HF_TYPE(kQ8_0)
    HF_TYPE(kQ4_0)
    HF_TYPE(kQ4_1)
#undef HF_TYPE
  }
}

// Widening 32 columns to take one of them: embedding rows are few.
template <WeightType kType>
void ColumnOfType(const std::byte* panel, int column, std::int64_t cols,
                  float* out) {
  const DF d;
  const int lanes = LaneCount();
  const int base = column / lanes * lanes;
  float vector[kVirtualLanes];
  if constexpr (IsQuantised(kType)) {
    for (std::int64_t k0 = 0; k0 < cols; k0 += kQuantBlock) {
      const std::byte* block = panel + PanelBytes(kType, k0);
      const VF scale = LoadF16(block + base * 2);
      const VF minimum = LoadMinimum<kType>(block, base);
      const std::byte* values = block + QuantHeaderBytes(kType);
      for (int pair = 0; pair < kQuantBlock / 2; ++pair) {
        VF even, odd;
        LoadPair<kType>(values, pair, base, even, odd);
        hn::StoreU(Dequantise<kType>(even, scale, minimum), d, vector);
        out[k0 + 2 * pair] = vector[column - base];
        hn::StoreU(Dequantise<kType>(odd, scale, minimum), d, vector);
        out[k0 + 2 * pair + 1] = vector[column - base];
      }
    }
  } else {
    for (std::int64_t k = 0; k < cols; ++k) {
      hn::StoreU(LoadPlain<kType>(panel, k, base), d, vector);
      out[k] = vector[column - base];
    }
  }
}

void Column(const Panel& panel, int column, std::int64_t cols, float* out) {
  switch (panel.type) {
#define HF_TYPE(type)    \
  case WeightType::type: \
    return ColumnOfType<WeightType::type>(panel.data, column, cols, out);
    HF_TYPE(kF32)
    HF_TYPE(kF16)
    HF_TYPE(kBF16)
    HF_TYPE(kQ8_0)
    HF_TYPE(kQ4_0)
    HF_TYPE(kQ4_1)
#undef HF_TYPE
  }
}

void WidenPanel(const Panel& panel, std::int64_t k_start, int k_count,
                float* out) {
  switch (panel.type) {
#define HF_TYPE(type)                                                       \
  case WeightType::type:                                                    \
    return WidenPanelOfType<WeightType::type>(panel.data, k_start, k_count, \
                                              out);
    HF_TYPE(kF32)
    HF_TYPE(kF16)
    HF_TYPE(kBF16)
    HF_TYPE(kQ8_0)
    HF_TYPE(kQ4_0)
    HF_TYPE(kQ4_1)
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
