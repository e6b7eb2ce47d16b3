// Products of many rows: a register tile of row_tile rows x 2 vectors over
// weights that were widened into the first-level cache; included once per
// target.
#if defined(HOLDFAST_KERNELS_HOST_PRODUCT_TILE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_PRODUCT_TILE_INL_H_
#undef HOLDFAST_KERNELS_HOST_PRODUCT_TILE_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_PRODUCT_TILE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/repeat.h"
#include "kernels/host/vector_math-inl.h"
#include "kernels/host/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

// 2 accumulators a row, 2 weights and a broadcast must fit the registers:
// 16 in AVX2, 32 elsewhere.
#if HWY_TARGET == HWY_AVX2
inline constexpr int kRowTile = 6;
#else
inline constexpr int kRowTile = 12;
#endif

#define HF_START(r)                                        \
  VF c0_##r = hn::Zero(d);                                 \
  VF c1_##r = hn::Zero(d);                                 \
  if constexpr (kRows > r) {                               \
    if (!first) {                                          \
      c0_##r = hn::LoadU(d, out + r * out_stride);         \
      c1_##r = hn::LoadU(d, out + r * out_stride + lanes); \
    }                                                      \
  }
#define HF_ACCUMULATE(r)                \
  if constexpr (kRows > r) {            \
    const VF a = hn::Set(d, x[r]);      \
    c0_##r = hn::MulAdd(a, w0, c0_##r); \
    c1_##r = hn::MulAdd(a, w1, c1_##r); \
  }
#define HF_STORE(r)                                      \
  if constexpr (kRows > r) {                             \
    hn::StoreU(c0_##r, d, out + r * out_stride);         \
    hn::StoreU(c1_##r, d, out + r * out_stride + lanes); \
  }

// kRows rows x 2 vectors of columns. x: [k][kRows]; w: [k][2 vectors].
template <int kRows>
HWY_NOINLINE void MultiplyTile(const float* HWY_RESTRICT x,
                               const float* HWY_RESTRICT w, int k_count,
                               bool first, float* HWY_RESTRICT out,
                               std::int64_t out_stride) {
  const DF d;
  const int lanes = LaneCount();
  HF_REPEAT_12(HF_START)
  for (int k = 0; k < k_count; ++k) {
    const VF w0 = hn::LoadU(d, w);
    const VF w1 = hn::LoadU(d, w + lanes);
    HF_REPEAT_12(HF_ACCUMULATE)
    x += kRows;
    w += 2 * lanes;
  }
  HF_REPEAT_12(HF_STORE)
}

#undef HF_START
#undef HF_ACCUMULATE
#undef HF_STORE

// The last tile of a block has 1 to kRowTile - 1 rows.
template <int kRows>
void MultiplyTailTile(int rows, const float* x, const float* w, int k_count,
                      bool first, float* out, std::int64_t out_stride) {
  if (rows == kRows) {
    MultiplyTile<kRows>(x, w, k_count, first, out, out_stride);
  } else if constexpr (kRows > 1) {
    MultiplyTailTile<kRows - 1>(rows, x, w, k_count, first, out, out_stride);
  }
}

// All row tiles against one column pair of vectors.
HWY_INLINE void MultiplyRows(const float* x, int rows, const float* w,
                             int k_count, bool first, float* out,
                             std::int64_t out_stride) {
  int r = 0;
  for (; r + kRowTile <= rows; r += kRowTile) {
    MultiplyTile<kRowTile>(x + static_cast<std::ptrdiff_t>(r) * k_count, w,
                           k_count, first, out + r * out_stride, out_stride);
  }
  if (r < rows) {
    MultiplyTailTile<kRowTile - 1>(
        rows - r, x + static_cast<std::ptrdiff_t>(r) * k_count, w, k_count,
        first, out + r * out_stride, out_stride);
  }
}

void MultiplyBlock(const ProductBlock& block) {
  const int step = 2 * LaneCount();
  for (int column = 0; column < kPanelColumns; column += step) {
    MultiplyRows(block.x, block.rows,
                 block.w + static_cast<std::ptrdiff_t>(column) * block.k_count,
                 block.k_count, block.first, block.out + column,
                 block.out_stride);
  }
  if (block.bias == nullptr) return;
  for (int r = 0; r < block.rows; ++r) {
    float* row = block.out + r * block.out_stride;
    for (int n = 0; n < kPanelColumns; ++n) row[n] += block.bias[n];
  }
}

// out: [column pair of vectors][k][2 vectors].
template <WeightType kType>
void WidenPanelOfType(const std::byte* panel, std::int64_t k_start, int k_count,
                      float* HWY_RESTRICT out) {
  const DF d;
  const int lanes = LaneCount();
  const int pair_width = 2 * lanes;
  for (int column = 0; column < kPanelColumns; column += lanes) {
    float* to = out +
                static_cast<std::ptrdiff_t>(column / pair_width) * pair_width *
                    k_count +
                column % pair_width;
    if constexpr (IsQuantised(kType)) {
      for (int k = 0; k < k_count; k += kQuantBlock) {
        const std::byte* block = panel + PanelBytes(kType, k_start + k);
        const VF scale = LoadF16(block + column * 2);
        const VF minimum = LoadMinimum<kType>(block, column);
        const std::byte* values = block + QuantHeaderBytes(kType);
        for (int pair = 0; pair < kQuantBlock / 2; ++pair) {
          VF even, odd;
          LoadPair<kType>(values, pair, column, even, odd);
          hn::StoreU(Dequantise<kType>(even, scale, minimum), d, to);
          hn::StoreU(Dequantise<kType>(odd, scale, minimum), d,
                     to + pair_width);
          to += 2 * pair_width;
        }
      }
    } else {
      for (int k = 0; k < k_count; ++k, to += pair_width) {
        hn::StoreU(LoadPlain<kType>(panel, k_start + k, column), d, to);
      }
    }
  }
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
