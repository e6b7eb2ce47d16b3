// The register tile of products and of prefill attention: rows x 2 vectors of
// columns, sums over k ascending; included once per target.
#if defined(HOLDFAST_KERNELS_HOST_REGISTER_TILE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_REGISTER_TILE_INL_H_
#undef HOLDFAST_KERNELS_HOST_REGISTER_TILE_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_REGISTER_TILE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/repeat.h"
#include "kernels/host/vector_math-inl.h"

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

// Where the left operand's number (row, k) lies.
struct PackedRows {  // [k][rows of the tile]
  template <int kRows>
  static constexpr int KStride() {
    return kRows;
  }
  static constexpr int kRowStride = 1;
};
struct ScoreRows {  // [row][kTileKeys]
  template <int kRows>
  static constexpr int KStride() {
    return 1;
  }
  static constexpr int kRowStride = kTileKeys;
};

#define HF_START(r)                                        \
  VF c0_##r = hn::Zero(d);                                 \
  VF c1_##r = hn::Zero(d);                                 \
  if constexpr (kRows > r) {                               \
    if (!first) {                                          \
      c0_##r = hn::LoadU(d, out + r * out_stride);         \
      c1_##r = hn::LoadU(d, out + r * out_stride + lanes); \
    }                                                      \
  }
#define HF_ACCUMULATE(r)                                \
  if constexpr (kRows > r) {                            \
    const VF a = hn::Set(d, x[r * Layout::kRowStride]); \
    c0_##r = hn::MulAdd(a, w0, c0_##r);                 \
    c1_##r = hn::MulAdd(a, w1, c1_##r);                 \
  }
#define HF_STORE(r)                                      \
  if constexpr (kRows > r) {                             \
    hn::StoreU(c0_##r, d, out + r * out_stride);         \
    hn::StoreU(c1_##r, d, out + r * out_stride + lanes); \
  }

// kRows rows x 2 vectors of columns. w: [k][2 vectors]. Sums start from zero
// with `first`, else from what `out` holds.
template <int kRows, class Layout>
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
    x += Layout::template KStride<kRows>();
    w += 2 * lanes;
  }
  HF_REPEAT_12(HF_STORE)
}

#undef HF_START
#undef HF_ACCUMULATE
#undef HF_STORE

// The last tile of a run of rows has 1 to kRowTile - 1 of them.
template <class Layout, int kRows = kRowTile - 1>
void MultiplyTailTile(int rows, const float* x, const float* w, int k_count,
                      bool first, float* out, std::int64_t out_stride) {
  if (rows == kRows) {
    MultiplyTile<kRows, Layout>(x, w, k_count, first, out, out_stride);
  } else if constexpr (kRows > 1) {
    MultiplyTailTile<Layout, kRows - 1>(rows, x, w, k_count, first, out,
                                        out_stride);
  }
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
