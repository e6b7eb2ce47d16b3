#include "kernels/host/attention.h"

#include <algorithm>
#include <cstdint>

#include "kernels/host/fetch.h"
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

}  // namespace

Status HostAttention::Prepare(const Limits& limits) {
  const std::size_t heads = limits.max_heads;
  const std::size_t dims = limits.max_head_dim;
  const std::size_t one_row = TilesOf(std::max(limits.max_positions, 1) - 1) *
                              heads * (kPartialHeader + dims);
  HF_ASSIGN_OR_RETURN(
      partials_,
      HostMemory::Make(std::max(one_row, kPartialFloats) * sizeof(float),
                       "attention partial results"));
  progress_.resize(pool_.threads());
  combined_.resize(kRowBatch);
  thread_floats_ =
      std::max({heads * (kTileKeys + kPartialHeader + dims),
                CombineFloats(TilesOf(std::max(limits.max_positions, 1) - 1)),
                PrefillScratchFloats(limits.max_head_dim)});
  query_floats_ = heads * dims;
  thread_floats_ += query_floats_;
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
  batch_.call = call;
  batch_.span = span;
  batch_.first = first;
  batch_.rows = rows;
  batch_.tiles = TilesOf(span.position + first + rows - 1);
  ++batch_.number;
  batch_.perturbed = IsPerturbed(span);
  pool_.For(rows * batch_.tiles,
            [this](int index, int thread) { RunTile(index, thread); });
  CombineTiles();
}

const float* HostAttention::ScaledQuery(int row, int thread) {
  float* const scaled =
      thread_scratch_.floats() + (thread + 1) * thread_floats_ - query_floats_;
  if (progress_[thread].query == row) return scaled;
  progress_[thread].query = row;
  const AttentionCall& call = batch_.call;
  const std::int64_t width = call.heads * call.shape.head_dim;
  const float* const q =
      call.q + (batch_.span.first_row + batch_.first + row) *
                   static_cast<std::int64_t>(call.row_stride);
  FetchLines(q, width * sizeof(float));
  for (std::int64_t i = 0; i < width; ++i) scaled[i] = q[i] * call.scale;
  return scaled;
}

void HostAttention::RunTile(int index, int thread) {
  FetchLines(&batch_, sizeof(batch_));
  const AttentionCall& call = batch_.call;
  const RowSpan& span = batch_.span;
  const int tiles = batch_.tiles;
  const int row = index / tiles;
  const int tile = index % tiles;
  const int keys = std::min(
      kTileKeys, span.position + batch_.first + row + 1 - tile * kTileKeys);
  if (keys <= 0) return;
  Progress& progress = progress_[thread];
  if (progress.batch != batch_.number) {
    progress = {.batch = batch_.number, .query = -1, .row = -1, .next = 0};
  }
  const int dims = call.shape.head_dim;
  const std::size_t tile_floats =
      call.heads * static_cast<std::size_t>(kPartialHeader + dims);
  float* const row_partials =
      partials_.floats() + static_cast<std::size_t>(row) * tiles * tile_floats;
  float* const scores = thread_scratch_.floats() + thread * thread_floats_;
  float* const own = scores + call.heads * kTileKeys;
  const bool follows = progress.row == row && progress.next == tile;
  const int place = batch_.perturbed ? tiles - 1 - tile : tile;
  float* const to = follows ? own : row_partials + place * tile_floats;
  // Its lines are where they were read last.
  if (thread != 0 && !follows)
    FetchLinesToWrite(to, tile_floats * sizeof(float));
  const std::byte* const block = span.blocks[tile];
  const std::size_t k_offset = KOffset(call.shape, call.layer);
  kernels_.tile(call.shape,
                {block + k_offset, block + VOffset(call.shape, call.layer),
                 KeysAfter(index, thread)},
                keys, ScaledQuery(row, thread), call.heads, scores, to);
  if (follows) kernels_.merge(own, call.heads, dims, row_partials);
  if (place != 0 && !follows) return;
  combined_[row] = follows ? tile + 1 : 1;
  if (!batch_.perturbed) {
    progress.row = row;
    progress.next = tile + 1;
  }
}

const std::byte* HostAttention::KeysAfter(int index, int thread) const {
  const int tile = index % batch_.tiles;
  int layer = batch_.call.layer;
  int next = tile + 1;
  const ThreadPool::Range share =
      pool_.ShareOf(batch_.rows * batch_.tiles, thread);
  if (index + 1 == share.end && batch_.tiles > 1) {
    // As a rule the same rows are read in the next layer next.
    next = share.begin % batch_.tiles;
    ++layer;
  }
  if (next == batch_.tiles || layer == batch_.call.shape.layers) return nullptr;
  return batch_.span.blocks[next] + KOffset(batch_.call.shape, layer);
}

void HostAttention::CombineTiles() {
  const AttentionCall& call = batch_.call;
  const int dims = call.shape.head_dim;
  const std::size_t head_floats = kPartialHeader + dims;
  const std::size_t tile_floats = call.heads * head_floats;
  const int tiles = batch_.tiles;
  const int position = batch_.span.position + batch_.first;
  int merges = 0;
  for (int row = 0; row < batch_.rows; ++row) {
    merges += (TilesOf(position + row) - combined_[row]) * call.heads;
  }
  float* const out = call.out + static_cast<std::int64_t>(
                                    batch_.span.first_row + batch_.first) *
                                    call.heads * dims;
  // What another thread has left: all of it on its way at once.
  if (batch_.rows == 1) {
    FetchLines(partials_.data(), tile_floats * sizeof(float));
  }
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
  const int outputs = batch_.rows * call.heads;
  if (merges >= kSharedMerges) {
    pool_.For(outputs, combine);
  } else {
    for (int index = 0; index < outputs; ++index) combine(index, 0);
  }
}

}  // namespace holdfast::kernels
