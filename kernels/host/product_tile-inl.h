// Products of many rows: register tiles over weights that were widened into
// the first-level cache; included once per target.
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
#include "kernels/host/register_tile-inl.h"
#include "kernels/host/vector_math-inl.h"
#include "kernels/host/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

// All row tiles against one column pair of vectors.
HWY_INLINE void MultiplyRows(const float* x, int rows, const float* w,
                             int k_count, bool first, float* out,
                             std::int64_t out_stride) {
  int r = 0;
  for (; r + kRowTile <= rows; r += kRowTile) {
    MultiplyTile<kRowTile, PackedRows>(
        x + static_cast<std::ptrdiff_t>(r) * k_count, w, k_count, first,
        out + r * out_stride, out_stride);
  }
  if (r < rows) {
    MultiplyTailTile<PackedRows>(
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
void WidenPanelOfType(const Panel& panel, std::int64_t k_start, int k_count,
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
      constexpr QuantFormat kFormat = FormatOf(kType);
      static_assert(kWidenedK % kFormat.group == 0);
      const std::byte* block = panel.data + k_start / kFormat.block *
                                                QuantBlockBytes(kType) *
                                                panel.width;
      int group = static_cast<int>(k_start % kFormat.block) / kFormat.group;
      const int at = panel.column + column;
      for (int k = 0; k < k_count; k += kFormat.group) {
        const VF scale = LoadScale<kType>(block, panel.width, at, group);
        const VF minimum = LoadMinimum<kType>(block, panel.width, at, group);
        const std::byte* values = GroupValues<kType>(block, panel.width, group);
        for (int pair = 0; pair < kFormat.group / 2; ++pair) {
          VF even, odd;
          LoadPair<kType>(values, panel.width, pair, at, even, odd);
          hn::StoreU(Dequantise<kType>(even, scale, minimum), d, to);
          hn::StoreU(Dequantise<kType>(odd, scale, minimum), d,
                     to + pair_width);
          to += 2 * pair_width;
        }
        if (++group == kFormat.block / kFormat.group) {
          group = 0;
          block += QuantBlockBytes(kType) * panel.width;
        }
      }
    } else {
      for (int k = 0; k < k_count; ++k, to += pair_width) {
        hn::StoreU(LoadPlain<kType>(panel.data, k_start + k, column), d, to);
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
