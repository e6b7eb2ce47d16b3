// Products of few rows: every weight is widened in registers, once for all
// rows; included once per target.
#if defined(HOLDFAST_KERNELS_HOST_PRODUCT_FEW_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_PRODUCT_FEW_INL_H_
#undef HOLDFAST_KERNELS_HOST_PRODUCT_FEW_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_PRODUCT_FEW_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/repeat.h"
#include "kernels/host/vector_math-inl.h"
#include "kernels/host/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

// Rows whose accumulators fit the registers beside the weights, and rows for
// which two panels' do, or four vectors of an unquantised panel, which has more
// than two where they are short. Two panels, because one row over one is a
// single chain for each vector: it waits for the latency of every addition.
// (Two panels that do not lie side by side are two streams of memory: half as
// fast as one.)
#if HWY_TARGET == HWY_AVX2
inline constexpr int kFewRows = 4;
inline constexpr int kFewRowsOfTwoPanels = 1;
inline constexpr int kFewRowsOfFourVectors = 2;
#else
inline constexpr int kFewRows = 8;
inline constexpr int kFewRowsOfTwoPanels = 4;
inline constexpr int kFewRowsOfFourVectors = 4;
#endif

// How far ahead of its use memory is fetched: the processor's own prefetching
// ends at every page.
inline constexpr std::int64_t kFetchBytes = 8192;

// What to fetch while piece `piece` of `pieces`, of `bytes` each, is in use:
// a later one, or at the end of a panel what comes after it.
inline const std::byte* FetchAt(const std::byte* data, std::int64_t bytes,
                                std::int64_t piece, std::int64_t pieces,
                                const std::byte* next) {
  piece += (kFetchBytes + bytes - 1) / bytes;
  return piece < pieces ? data + piece * bytes
                        : next + (piece - pieces) * bytes;
}

// Row r has 2 accumulators for each panel.
#define HF_START(r)                         \
  [[maybe_unused]] VF c0_##r = hn::Zero(d); \
  [[maybe_unused]] VF c1_##r = hn::Zero(d); \
  [[maybe_unused]] VF c2_##r = hn::Zero(d); \
  [[maybe_unused]] VF c3_##r = hn::Zero(d);
#define HF_ACCUMULATE(r)                          \
  if constexpr (kRows > r) {                      \
    const VF a = hn::Set(d, x[r * x_stride + k]); \
    c0_##r = hn::MulAdd(a, w0, c0_##r);           \
    c1_##r = hn::MulAdd(a, w1, c1_##r);           \
    if constexpr (kPanels > 1) {                  \
      c2_##r = hn::MulAdd(a, w2, c2_##r);         \
      c3_##r = hn::MulAdd(a, w3, c3_##r);         \
    }                                             \
  }
#define HF_STORE(r)                                                     \
  if constexpr (kRows > r) {                                            \
    hn::StoreU(c0_##r, d, out + r * kPanelColumns);                     \
    hn::StoreU(c1_##r, d, out + r * kPanelColumns + lanes);             \
    if constexpr (kPanels > 1) {                                        \
      hn::StoreU(c2_##r, d, out + (kRows + r) * kPanelColumns);         \
      hn::StoreU(c3_##r, d, out + (kRows + r) * kPanelColumns + lanes); \
    }                                                                   \
  }

// Columns [column, column + 2 vectors) of a quantised panel, or of the two of a
// pair.
// out: [panel][row][kPanelColumns]. next: the weights that are read after them.
template <WeightType kType, int kRows, int kPanels>
void FewColumns(const Panel& panel, int column, std::int64_t cols,
                const float* HWY_RESTRICT x, std::int64_t x_stride,
                const std::byte* next, float* HWY_RESTRICT out) {
  const DF d;
  const int lanes = LaneCount();
  HF_REPEAT_8(HF_START)
  // A pair's second panel follows the first's columns in every row.
  const int width = kPanels == 2 ? 2 * kPanelColumns : panel.width;
  const int at0 = panel.column + column;
  const int at1 = at0 + lanes;
  const int at2 = at0 + (kPanels - 1) * kPanelColumns;
  const int at3 = at2 + lanes;
  const std::byte* block = panel.data;
  constexpr QuantFormat kFormat = FormatOf(kType);
  constexpr int kPairRows = kFormat.nibbles ? 1 : 2;
  const auto block_bytes =
      static_cast<std::int64_t>(QuantBlockBytes(kType)) * width;
  const std::int64_t blocks = (cols + kFormat.block - 1) / kFormat.block;
  const std::byte* ahead = FetchAt(block, block_bytes, 0, blocks, next);
  int group = 0;
  for (std::int64_t k0 = 0; k0 < cols; k0 += kFormat.group) {
    const VF scale0 = LoadScale<kType>(block, width, at0, group);
    const VF scale1 = LoadScale<kType>(block, width, at1, group);
    const VF scale2 = LoadScale<kType>(block, width, at2, group);
    const VF scale3 = LoadScale<kType>(block, width, at3, group);
    const VF minimum0 = LoadMinimum<kType>(block, width, at0, group);
    const VF minimum1 = LoadMinimum<kType>(block, width, at1, group);
    const VF minimum2 = LoadMinimum<kType>(block, width, at2, group);
    const VF minimum3 = LoadMinimum<kType>(block, width, at3, group);
    const std::byte* values = GroupValues<kType>(block, width, group);
    hwy::Prefetch(ahead);
    const std::byte* const values_ahead = ahead + (values - block);
    for (int pair = 0; pair < kFormat.group / 2; ++pair) {
      hwy::Prefetch(values_ahead + kPairRows * pair * width);
      VF even0, odd0, even1, odd1, even2, odd2, even3, odd3;
      LoadPair<kType>(values, width, pair, at0, even0, odd0);
      LoadPair<kType>(values, width, pair, at1, even1, odd1);
      LoadPair<kType>(values, width, pair, at2, even2, odd2);
      LoadPair<kType>(values, width, pair, at3, even3, odd3);
      std::int64_t k = k0 + 2 * pair;
      VF w0 = Dequantise<kType>(even0, scale0, minimum0);
      VF w1 = Dequantise<kType>(even1, scale1, minimum1);
      [[maybe_unused]] VF w2 = Dequantise<kType>(even2, scale2, minimum2);
      [[maybe_unused]] VF w3 = Dequantise<kType>(even3, scale3, minimum3);
      HF_REPEAT_8(HF_ACCUMULATE)
      ++k;
      w0 = Dequantise<kType>(odd0, scale0, minimum0);
      w1 = Dequantise<kType>(odd1, scale1, minimum1);
      w2 = Dequantise<kType>(odd2, scale2, minimum2);
      w3 = Dequantise<kType>(odd3, scale3, minimum3);
      HF_REPEAT_8(HF_ACCUMULATE)
    }
    if (++group == kFormat.block / kFormat.group) {
      group = 0;
      block += block_bytes;
      ahead = FetchAt(panel.data, block_bytes, k0 / kFormat.block + 1, blocks,
                      next);
    }
  }
  HF_REPEAT_8(HF_STORE)
}

#undef HF_START
#undef HF_ACCUMULATE
#undef HF_STORE

// Row r has an accumulator for each vector, two of which are a pair.
#define HF_START(r)                         \
  [[maybe_unused]] VF c0_##r = hn::Zero(d); \
  [[maybe_unused]] VF c1_##r = hn::Zero(d); \
  [[maybe_unused]] VF c2_##r = hn::Zero(d); \
  [[maybe_unused]] VF c3_##r = hn::Zero(d);
#define HF_ACCUMULATE(r)                          \
  if constexpr (kRows > r) {                      \
    const VF a = hn::Set(d, x[r * x_stride + k]); \
    c0_##r = hn::MulAdd(a, w0, c0_##r);           \
    c1_##r = hn::MulAdd(a, w1, c1_##r);           \
    if constexpr (kPairs > 1) {                   \
      c2_##r = hn::MulAdd(a, w2, c2_##r);         \
      c3_##r = hn::MulAdd(a, w3, c3_##r);         \
    }                                             \
  }
#define HF_STORE(r)                                           \
  if constexpr (kRows > r) {                                  \
    float* const row = out + r * kPanelColumns;               \
    StorePlainPair<kType>(c0_##r, c1_##r, row);               \
    if constexpr (kPairs > 1) {                               \
      StorePlainPair<kType>(c2_##r, c3_##r, row + 2 * lanes); \
    }                                                         \
  }

// Columns [column, column + 2 kPairs vectors) of an unquantised panel.
template <WeightType kType, int kRows, int kPairs>
void FewPlainColumns(const Panel& panel, int column, std::int64_t cols,
                     const float* HWY_RESTRICT x, std::int64_t x_stride,
                     const std::byte* next, float* HWY_RESTRICT out) {
  const DF d;
  [[maybe_unused]] const int lanes = LaneCount();
  constexpr auto kRowBytes =
      static_cast<std::int64_t>(ColumnBytes(kType, 1)) * kPanelColumns;
  HF_REPEAT_8(HF_START)
  for (std::int64_t k = 0; k < cols; ++k) {
    hwy::Prefetch(FetchAt(panel.data, kRowBytes, k, cols, next));
    VF w0, w1;
    LoadPlainPair<kType>(panel.data, k, column, w0, w1);
    [[maybe_unused]] VF w2 = w0, w3 = w1;
    if constexpr (kPairs > 1) {
      LoadPlainPair<kType>(panel.data, k, column + 2 * lanes, w2, w3);
    }
    HF_REPEAT_8(HF_ACCUMULATE)
  }
  HF_REPEAT_8(HF_STORE)
}

#undef HF_START
#undef HF_ACCUMULATE
#undef HF_STORE

template <WeightType kType, int kRows, int kPanels>
void FewPanels(const ProductFew& few, const Panel* panels,
               const std::byte* next) {
  float sums[kPanels * kRows * kPanelColumns];
  const int step = 2 * LaneCount();
  int column = 0;
  if constexpr (!IsQuantised(kType)) {
    if constexpr (kRows <= kFewRowsOfFourVectors) {
      for (; column + 2 * step <= kPanelColumns; column += 2 * step) {
        FewPlainColumns<kType, kRows, 2>(panels[0], column, few.cols, few.x,
                                         few.cols, next, sums + column);
      }
    }
    for (; column < kPanelColumns; column += step) {
      FewPlainColumns<kType, kRows, 1>(panels[0], column, few.cols, few.x,
                                       few.cols, next, sums + column);
    }
  } else {
    for (; column < kPanelColumns; column += step) {
      FewColumns<kType, kRows, kPanels>(panels[0], column, few.cols, few.x,
                                        few.cols, next, sums + column);
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    const std::int64_t first = panels[p].first_column;
    for (int r = 0; r < kRows; ++r) {
      const float* row = sums + (p * kRows + r) * kPanelColumns;
      float* out = few.out + r * few.out_stride + first;
      for (int n = 0; n < panels[p].columns; ++n) {
        out[n] = few.bias == nullptr ? row[n] : row[n] + few.bias[first + n];
      }
    }
  }
}

template <WeightType kType, int kRows>
void FewOfType(const ProductFew& few) {
  if (few.rows != kRows) {
    if constexpr (kRows > 1) FewOfType<kType, kRows - 1>(few);
    return;
  }
  if constexpr (IsPaired(kType) && kRows <= kFewRowsOfTwoPanels) {
    if (few.panel_count == 2) {
      FewPanels<kType, kRows, 2>(few, few.panels, few.next);
      return;
    }
  }
  for (int p = 0; p < few.panel_count; ++p) {
    const bool last = p + 1 == few.panel_count;
    FewPanels<kType, kRows, 1>(few, few.panels + p,
                               last ? few.next : few.panels[p + 1].data);
  }
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
