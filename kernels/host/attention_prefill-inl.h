// Attention of many rows: each tile of keys is unpacked once into float panels
// and multiplied in register tiles; included once per target.
#if defined(HOLDFAST_KERNELS_HOST_ATTENTION_PREFILL_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_HOST_ATTENTION_PREFILL_INL_H_
#undef HOLDFAST_KERNELS_HOST_ATTENTION_PREFILL_INL_H_
#else
#define HOLDFAST_KERNELS_HOST_ATTENTION_PREFILL_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/host/kernel_tables.h"
#include "kernels/host/register_tile-inl.h"
#include "kernels/host/softmax-inl.h"
#include "kernels/host/state-inl.h"
#include "kernels/host/vector_math-inl.h"
#include "shared/cache_layout.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
#if HF_TARGET_HAS_KERNELS

static_assert(kPrefillRows % kRowTile == 0 && kScoreRows % kRowTile == 0);

// A chunk's scratch, in order of size.
struct PrefillScratch {
  PrefillScratch(float* memory, int head_dim)
      : padded_dims((head_dim + kPanelColumns - 1) / kPanelColumns *
                    kPanelColumns) {
    const auto take = [&memory](std::size_t count) {
      float* taken = memory;
      memory += count;
      return taken;
    };
    k = take(std::size_t{kTileKeys} * head_dim);
    v = take(std::size_t{kTileKeys} * padded_dims);
    q = take(std::size_t{kPrefillRows} * head_dim);
    totals = take(std::size_t{kPrefillRows} * (kPartialHeader + head_dim));
    scores = take(std::size_t{kScoreRows} * kTileKeys);
    outputs = take(std::size_t{kScoreRows} * padded_dims);
    factors = take(std::size_t{kScoreRows} * 2);
  }

  int padded_dims;
  float* k;        // [pair of vectors of keys][dim][2 vectors]
  float* v;        // [pair of vectors of dims][key][2 vectors]
  float* q;        // [row tile][dim][row], scaled
  float* totals;   // [row] partial results so far
  float* scores;   // [row][kTileKeys]
  float* outputs;  // [row][padded_dims] of one tile of keys
  float* factors;  // [row] of the tile's and of the earlier outputs
};

// Keys of tile `tile` that row `row` of the launch sees; not above kTileKeys.
HWY_INLINE int VisibleKeys(const PrefillChunk& c, int row, int tile) {
  return std::min(kTileKeys, c.position + row / c.group + 1 - tile * kTileKeys);
}

HWY_INLINE void PackQueries(const PrefillChunk& c, float* packed) {
  const int dims = c.shape.head_dim;
  for (int first = 0; first < c.rows; first += kRowTile) {
    const int count = std::min(kRowTile, c.rows - first);
    for (int r = 0; r < count; ++r) {
      const int row = c.first_row + first + r;
      const float* from = c.q + row / c.group * c.q_stride +
                          (c.kv_head * c.group + row % c.group) * dims;
      for (int d = 0; d < dims; ++d) packed[d * count + r] = from[d] * c.scale;
    }
    packed += static_cast<std::ptrdiff_t>(count) * dims;
  }
}

// Lanes of keys that are not written hold whatever the pool holds; no other
// lane sees them.
template <StateType kState>
void UnpackK(const PrefillChunk& c, const std::byte* k, int keys, float* out) {
  const DF d;
  const int lanes = LaneCount();
  const int dims = c.shape.head_dim;
  for (int key = 0; key < keys; key += lanes) {
    float* to =
        out +
        static_cast<std::ptrdiff_t>(key / (2 * lanes)) * 2 * lanes * dims +
        key % (2 * lanes);
    const std::byte* from = KeyLanes(c.shape, k, key, c.kv_head);
    for (int dim = 0; dim < dims; dim += 2) {
      VF even, odd;
      LoadKeyPair<kState>(from, dim, even, odd);
      hn::StoreU(even, d, to);
      hn::StoreU(odd, d, to + 2 * lanes);
      to += 4 * lanes;
    }
  }
}

// Keys from `written` on become zeros: weights of +0 may meet them.
template <StateType kState>
void UnpackV(const PrefillChunk& c, const std::byte* v, int written, int keys,
             int padded_dims, float* out) {
  const DF d;
  const int lanes = LaneCount();
  const int dims = c.shape.head_dim;
  const std::size_t row = static_cast<std::size_t>(c.shape.kv_heads) * dims;
  for (int dim = 0; dim < padded_dims; dim += lanes) {
    float* to =
        out +
        static_cast<std::ptrdiff_t>(dim / (2 * lanes)) * 2 * lanes * kTileKeys +
        dim % (2 * lanes);
    const std::size_t column = static_cast<std::size_t>(c.kv_head) * dims + dim;
    const int filled = dim < dims ? written : 0;
    for (int key = 0; key < filled; ++key, to += 2 * lanes) {
      hn::StoreU(LoadState<kState>(v, key * row + column), d, to);
    }
    for (int key = filled; key < keys; ++key, to += 2 * lanes) {
      hn::StoreU(hn::Zero(d), d, to);
    }
  }
}

template <class Layout>
HWY_INLINE void MultiplyAnyTile(int rows, const float* x, const float* w,
                                int k_count, float* out,
                                std::int64_t out_stride) {
  if (rows == kRowTile) {
    MultiplyTile<kRowTile, Layout>(x, w, k_count, true, out, out_stride);
  } else {
    MultiplyTailTile<Layout>(rows, x, w, k_count, true, out, out_stride);
  }
}

// Scores of up to kScoreRows rows, from chunk row `first`, for keys below
// `keys`.
HWY_INLINE void ScoreRowsOf(const PrefillChunk& c, const PrefillScratch& s,
                            int first, int rows, int keys) {
  const int width = 2 * LaneCount();
  const int dims = c.shape.head_dim;
  for (int key = 0; key < keys; key += width) {
    for (int r = 0; r < rows; r += kRowTile) {
      MultiplyAnyTile<PackedRows>(
          std::min(kRowTile, rows - r),
          s.q + static_cast<std::ptrdiff_t>(first + r) * dims,
          s.k + static_cast<std::ptrdiff_t>(key) * dims, dims,
          s.scores + r * kTileKeys + key, kTileKeys);
    }
  }
}

// Turns scores into weights and adds the tile's sums to the rows' totals.
HWY_INLINE void WeighRows(const PrefillChunk& c, const PrefillScratch& s,
                          int tile, int first, int rows, int keys) {
  for (int r = 0; r < rows; ++r) {
    float* scores = s.scores + r * kTileKeys;
    const int visible = VisibleKeys(c, c.first_row + first + r, tile);
    if (visible <= 0) {
      std::fill(scores, scores + keys, 0.0f);
      continue;
    }
    float* total = s.totals + static_cast<std::ptrdiff_t>(first + r) *
                                  (kPartialHeader + c.shape.head_dim);
    float header[kPartialHeader];
    header[0] = SoftmaxWeights(scores, visible, header + kPartialLanes);
    const int weighed =
        (visible + kVirtualLanes - 1) / kVirtualLanes * kVirtualLanes;
    std::fill(scores + weighed, scores + std::max(weighed, keys), 0.0f);
    if (tile == 0) {
      std::memcpy(total, header, sizeof(header));
      continue;
    }
    VF tile_scale, total_scale;
    MergeHeader(header, total, tile_scale, total_scale);
    s.factors[2 * r] = hn::GetLane(tile_scale);
    s.factors[2 * r + 1] = hn::GetLane(total_scale);
  }
}

HWY_INLINE void AddOutputs(const PrefillChunk& c, const PrefillScratch& s,
                           int tile, int first, int rows) {
  const DF d;
  const int dims = c.shape.head_dim;
  const int step = LaneCount();
  for (int r = 0; r < rows; ++r) {
    if (VisibleKeys(c, c.first_row + first + r, tile) <= 0) continue;
    float* output = s.outputs + static_cast<std::ptrdiff_t>(r) * s.padded_dims;
    for (int i = 0; i < dims; i += step) {  // canonical: no -0
      hn::StoreU(hn::Add(hn::LoadU(d, output + i), hn::Zero(d)), d, output + i);
    }
    float* total =
        s.totals +
        static_cast<std::ptrdiff_t>(first + r) * (kPartialHeader + dims) +
        kPartialHeader;
    if (tile == 0) {
      std::memcpy(total, output, dims * sizeof(float));
    } else {
      ScaleAdd(output, hn::Set(d, s.factors[2 * r]),
               hn::Set(d, s.factors[2 * r + 1]), dims, total);
    }
  }
}

// One tile of keys for rows [first, first + rows) of the chunk, at most
// kScoreRows.
HWY_INLINE void PrefillTile(const PrefillChunk& c, const PrefillScratch& s,
                            int tile, int first, int rows) {
  const int width = 2 * LaneCount();
  const int visible = VisibleKeys(c, c.first_row + first + rows - 1, tile);
  if (visible <= 0) return;
  const int keys = (visible + width - 1) / width * width;
  ScoreRowsOf(c, s, first, rows, keys);
  WeighRows(c, s, tile, first, rows, keys);
  for (int dim = 0; dim < c.shape.head_dim; dim += width) {
    for (int r = 0; r < rows; r += kRowTile) {
      MultiplyAnyTile<ScoreRows>(
          std::min(kRowTile, rows - r), s.scores + r * kTileKeys,
          s.v + static_cast<std::ptrdiff_t>(dim) * kTileKeys, keys,
          s.outputs + r * s.padded_dims + dim, s.padded_dims);
    }
  }
  AddOutputs(c, s, tile, first, rows);
}

template <StateType kState>
void PrefillOfState(const PrefillChunk& c) {
  const PrefillScratch s(c.scratch, c.shape.head_dim);
  const int width = 2 * LaneCount();
  PackQueries(c, s.q);
  const int last_row = c.first_row + c.rows - 1;
  const int last_key = c.position + last_row / c.group;
  for (int tile = 0; tile <= last_key / kTileKeys; ++tile) {
    const int visible = VisibleKeys(c, last_row, tile);
    const int keys = (visible + width - 1) / width * width;
    const int written = std::min(keys, c.written - tile * kTileKeys);
    UnpackK<kState>(c, c.blocks[tile] + c.k_offset, keys, s.k);
    UnpackV<kState>(c, c.blocks[tile] + c.v_offset, written, keys,
                    s.padded_dims, s.v);
    for (int first = 0; first < c.rows; first += kScoreRows) {
      PrefillTile(c, s, tile, first, std::min(kScoreRows, c.rows - first));
    }
  }
  for (int r = 0; r < c.rows; ++r) {
    const int row = c.first_row + r;
    FinishPartial(s.totals + static_cast<std::ptrdiff_t>(r) *
                                 (kPartialHeader + c.shape.head_dim),
                  c.shape.head_dim,
                  c.out + row / c.group * c.out_stride +
                      (c.kv_head * c.group + row % c.group) * c.shape.head_dim);
  }
}

#endif  // HF_TARGET_HAS_KERNELS
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
