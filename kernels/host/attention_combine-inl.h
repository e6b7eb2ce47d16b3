// Combination of a row's tiles, many heads or many tiles at a time; included
// once per target. Bit for bit what MergeHeader and ScaleAdd do one by one.
#if defined(HOLDFAST_KERNELS_HOST_ATTENTION_COMBINE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_ATTENTION_COMBINE_INL_H_
#undef HOLDFAST_KERNELS_HOST_ATTENTION_COMBINE_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_ATTENTION_COMBINE_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/softmax-inl.h"
#include "kernels/host/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

// numbers[i] = ExpOrZero(numbers[i]); room for the next multiple of 16.
HWY_INLINE void ExpOfMany(int count, float* HWY_RESTRICT numbers) {
  const DF d;
  for (int i = 0; i < count; i += LaneCount()) {
    hn::StoreU(ExpOrZero(hn::LoadU(d, numbers + i)), d, numbers + i);
  }
}

// Adds the next tile's partial results of at most 16 heads to `total`. The
// factors of all heads are computed side by side.
HWY_INLINE void MergeHeads(const float* HWY_RESTRICT next, int heads,
                           int head_dim, float* HWY_RESTRICT total) {
  const DF d;
  const std::ptrdiff_t floats = kPartialHeader + head_dim;
  float total_scales[kVirtualLanes] = {};
  float next_scales[kVirtualLanes] = {};
  for (int head = 0; head < heads; ++head) {
    float& old = total[head * floats];
    const float added = next[head * floats];
    const float largest = old > added ? old : added;
    total_scales[head] = old - largest;
    next_scales[head] = added - largest;
    old = largest;
  }
  ExpOfMany(heads, total_scales);
  ExpOfMany(heads, next_scales);
  for (int head = 0; head < heads; ++head) {
    ScaleAdd(next + head * floats + kPartialLanes,
             hn::Set(d, next_scales[head]), hn::Set(d, total_scales[head]),
             kVirtualLanes + head_dim, total + head * floats + kPartialLanes);
  }
}

// Partial results of one head: the first, and `tiles` that follow it, `stride`
// floats apart from `next` on.
struct TileRun {
  const float* first = nullptr;
  const float* next = nullptr;
  int tiles = 0;
  std::size_t stride = 0;
};

// A vector of partial results, `offset` floats from their start, combined.
HWY_INLINE VF CombineVector(const TileRun& run, std::size_t offset,
                            const float* HWY_RESTRICT total_scales,
                            const float* HWY_RESTRICT next_scales) {
  const DF d;
  VF total = hn::LoadU(d, run.first + offset);
  const float* added = run.next + offset;
  for (int tile = 0; tile < run.tiles; ++tile, added += run.stride) {
    const VF scaled = hn::Mul(total, hn::Set(d, total_scales[tile]));
    total =
        hn::MulAdd(hn::LoadU(d, added), hn::Set(d, next_scales[tile]), scaled);
  }
  return total;
}

// Writes the head's head_dim outputs. factors: scratch (CombineFloats). The
// factors of all tiles are computed side by side, and what waits for the tile
// before is one multiplication and one addition.
HWY_INLINE void CombineTiles(const TileRun& run, int head_dim,
                             float* HWY_RESTRICT factors,
                             float* HWY_RESTRICT out) {
  const DF d;
  const int step = LaneCount();
  float* const total_scales = factors;
  float* const next_scales = factors + CombineFloats(run.tiles) / 2;
  float largest = run.first[0];
  for (int tile = 0; tile < run.tiles; ++tile) {
    const float added = run.next[tile * run.stride];
    const float old = largest;
    largest = old > added ? old : added;
    total_scales[tile] = old - largest;
    next_scales[tile] = added - largest;
  }
  ExpOfMany(run.tiles, total_scales);
  ExpOfMany(run.tiles, next_scales);
  float lanes[kVirtualLanes];
  for (int i = 0; i < kVirtualLanes; i += step) {
    hn::StoreU(CombineVector(run, kPartialLanes + i, total_scales, next_scales),
               d, lanes + i);
  }
  const VF sum = hn::Set(d, TreeSum(lanes));
  for (int i = 0; i < head_dim; i += step) {
    const VF total =
        CombineVector(run, kPartialHeader + i, total_scales, next_scales);
    hn::StoreU(hn::Div(total, sum), d, out + i);
  }
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
