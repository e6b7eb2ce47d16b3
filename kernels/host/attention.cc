#include "kernels/host/attention.h"

#include <algorithm>
#include <cstdint>

#include "kernels/host/kv_layout.h"

namespace holdfast::kernels {
namespace {

// Rows whose tiles are computed in one parallel loop.
constexpr int kRowBatch = 16;
// Partial results of one batch, unless one row needs more.
constexpr std::size_t kPartialFloats = std::size_t{1} << 19;

// Fewer results than this are combined by the calling thread.
constexpr int kSharedMerges = 64;

// From this many (token, head) rows of a KV head on, unpacking tiles pays.
constexpr int kManyRows = 24;

static_assert(kTileKeys == kBlockTokens, "a tile is a block's rows");

int TilesOf(int position) { return position / kTileKeys + 1; }

// `last`: whether no tile follows.
KvTile TileOf(const AttentionCall& call, const RowSpan& span, int tile,
              bool last) {
  const std::byte* block = span.blocks[tile];
  const std::size_t k_offset = KOffset(call.shape, call.layer);
  return {block + k_offset, block + VOffset(call.shape, call.layer),
          last ? nullptr : span.blocks[tile + 1] + k_offset};
}

}  // namespace

Status HostAttention::Prepare(const Limits& limits) {
  const std::size_t heads = limits.max_heads;
  const std::size_t dims = limits.max_head_dim;
  const std::size_t one_row = TilesOf(std::max(limits.max_positions, 1) - 1) *
                              heads * (kPartialHeader + dims);
  HF_ASSIGN_OR_RETURN(queries_,
                      HostMemory::Make(kRowBatch * heads * dims * sizeof(float),
                                       "attention queries"));
  HF_ASSIGN_OR_RETURN(
      partials_,
      HostMemory::Make(std::max(one_row, kPartialFloats) * sizeof(float),
                       "attention partial results"));
  leads_.resize(pool_.threads());
  combined_.resize(kRowBatch);
  thread_floats_ = std::max(heads * (kTileKeys + kPartialHeader + dims),
                            PrefillScratchFloats(limits.max_head_dim));
  HF_ASSIGN_OR_RETURN(
      thread_scratch_,
      HostMemory::Make(thread_floats_ * pool_.threads() * sizeof(float),
                       "attention scratch"));
  return OkStatus();
}

void HostAttention::Run(const AttentionCall& call, const RowSpan& span) {
  if (!IsPerturbed(span) &&
      span.rows * (call.heads / call.shape.kv_heads) >= kManyRows) {
    RunMany(call, span);
    return;
  }
  const int last = span.position + span.rows - 1;
  const std::size_t row_floats =
      TilesOf(last) * call.heads *
      static_cast<std::size_t>(kPartialHeader + call.shape.head_dim);
  const std::size_t fitting = partials_.bytes() / sizeof(float) / row_floats;
  const int batch =
      static_cast<int>(std::clamp<std::size_t>(fitting, 1, kRowBatch));
  for (int first = 0; first < span.rows; first += batch) {
    RunRows(call, span, first, std::min(batch, span.rows - first));
  }
}

void HostAttention::RunMany(const AttentionCall& call, const RowSpan& span) {
  const int dims = call.shape.head_dim;
  PrefillChunk whole;
  whole.shape = call.shape;
  whole.group = call.heads / call.shape.kv_heads;
  whole.position = span.position;
  whole.written = span.position + span.rows;
  whole.blocks = span.blocks;
  whole.k_offset = KOffset(call.shape, call.layer);
  whole.v_offset = VOffset(call.shape, call.layer);
  whole.q =
      call.q + static_cast<std::int64_t>(span.first_row) * call.row_stride;
  whole.q_stride = call.row_stride;
  whole.scale = call.scale;
  whole.out_stride = static_cast<std::int64_t>(call.heads) * dims;
  whole.out = call.out + span.first_row * whole.out_stride;

  const int rows = span.rows * whole.group;
  const int chunks = (rows + kPrefillRows - 1) / kPrefillRows;
  pool_.For(chunks * call.shape.kv_heads, [&](int task, int thread) {
    PrefillChunk chunk = whole;
    // Later rows see more keys: the longest tasks of a KV head first.
    chunk.first_row = (chunks - 1 - task % chunks) * kPrefillRows;
    chunk.rows = std::min(kPrefillRows, rows - chunk.first_row);
    chunk.kv_head = task / chunks;
    chunk.scratch = thread_scratch_.floats() + thread * thread_floats_;
    kernels_.prefill(chunk);
  });
}

void HostAttention::RunRows(const AttentionCall& call, const RowSpan& span,
                            int first, int rows) {
  const int width = call.heads * call.shape.head_dim;
  const float* q = call.q + static_cast<std::int64_t>(span.first_row + first) *
                                call.row_stride;
  for (int r = 0; r < rows; ++r) {
    float* scaled = queries_.floats() + static_cast<std::size_t>(r) * width;
    const float* row = q + static_cast<std::int64_t>(r) * call.row_stride;
    for (int i = 0; i < width; ++i) scaled[i] = row[i] * call.scale;
  }
  for (Lead& lead : leads_) lead = {};
  const int tiles = TilesOf(span.position + first + rows - 1);
  pool_.For(rows * tiles, [&](int index, int thread) {
    RunTile(call, span, first, tiles, index, thread);
  });
  CombineTiles(call, span, first, rows);
}

void HostAttention::RunTile(const AttentionCall& call, const RowSpan& span,
                            int first, int tiles, int index, int thread) {
  const int row = index / tiles;
  const int tile = index % tiles;
  const int keys =
      std::min(kTileKeys, span.position + first + row + 1 - tile * kTileKeys);
  if (keys <= 0) return;
  const int dims = call.shape.head_dim;
  const std::size_t tile_floats =
      call.heads * static_cast<std::size_t>(kPartialHeader + dims);
  float* const row_partials =
      partials_.floats() + static_cast<std::size_t>(row) * tiles * tile_floats;
  float* const scores = thread_scratch_.floats() + thread * thread_floats_;
  float* const own = scores + call.heads * kTileKeys;
  Lead& lead = leads_[thread];
  const bool follows = lead.row == row && lead.next == tile;
  const int place = IsPerturbed(span) ? tiles - 1 - tile : tile;
  float* const to = follows ? own : row_partials + place * tile_floats;
  kernels_.tile(
      call.shape,
      TileOf(call, span, tile, keys < kTileKeys || tile + 1 == tiles), keys,
      queries_.floats() + static_cast<std::size_t>(row) * call.heads * dims,
      call.heads, scores, to);
  if (follows) kernels_.merge(own, call.heads, dims, row_partials);
  if (place != 0 && !follows) return;
  combined_[row] = follows ? tile + 1 : 1;
  if (!IsPerturbed(span)) lead = {row, tile + 1};
}

void HostAttention::CombineTiles(const AttentionCall& call, const RowSpan& span,
                                 int first, int rows) {
  const int dims = call.shape.head_dim;
  const std::size_t head_floats = kPartialHeader + dims;
  const std::size_t tile_floats = call.heads * head_floats;
  const int position = span.position + first;
  const int tiles = TilesOf(position + rows - 1);
  int merges = 0;
  for (int row = 0; row < rows; ++row) {
    merges += (TilesOf(position + row) - combined_[row]) * call.heads;
  }
  float* const out =
      call.out +
      static_cast<std::int64_t>(span.first_row + first) * call.heads * dims;
  const auto combine = [&](int index, int thread) {
    const int row = index / call.heads;
    const int head = index % call.heads;
    const float* partials =
        partials_.floats() +
        static_cast<std::size_t>(row) * tiles * tile_floats +
        head * head_floats;
    const int combined = combined_[row];
    kernels_.combine(partials, partials + combined * tile_floats,
                     TilesOf(position + row) - combined, tile_floats, dims,
                     thread_scratch_.floats() + thread * thread_floats_,
                     out + static_cast<std::int64_t>(index) * dims);
  };
  const int outputs = rows * call.heads;
  if (merges >= kSharedMerges) {
    pool_.For(outputs, combine);
  } else {
    for (int index = 0; index < outputs; ++index) combine(index, 0);
  }
}

}  // namespace holdfast::kernels
