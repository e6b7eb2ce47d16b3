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

// A row with fewer products of numbers is left to one thread while it has one
// tile: a start of the others would take as long.
constexpr std::int64_t kSharedWork = std::int64_t{1} << 16;

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
  combined_.resize(std::max({kRowBatch, pool_.threads(), limits.max_heads}));
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

int HostAttention::PartsOf(const AttentionCall& call, int keys,
                           int rows) const {
  const int kv_heads = call.shape.kv_heads;
  const int tiles = TilesOf(keys - 1);
  const std::int64_t work =
      static_cast<std::int64_t>(call.heads) * call.shape.head_dim * keys;
  if (rows > 1 || work < kSharedWork || tiles >= 2 * pool_.threads()) return 1;
  if (kv_heads % pool_.threads() == 0) return pool_.threads();
  return tiles == 1 ? kv_heads : 1;
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
  batch_.parts = PartsOf(call, span.position + first + 1, rows);
  pool_.For(rows * batch_.parts * batch_.tiles,
            [this](int index, int thread) { RunTile(index, thread); });
  CombineTiles();
}

const float* HostAttention::ScaledQuery(int row, int part, int thread) {
  const int of_row = row * batch_.parts + part;
  float* const scaled =
      thread_scratch_.floats() + (thread + 1) * thread_floats_ - query_floats_;
  if (progress_[thread].query == of_row) return scaled;
  progress_[thread].query = of_row;
  const AttentionCall& call = batch_.call;
  const std::int64_t width =
      static_cast<std::int64_t>(call.heads / batch_.parts) *
      call.shape.head_dim;
  const float* const q = call.q +
                         (batch_.span.first_row + batch_.first + row) *
                             static_cast<std::int64_t>(call.row_stride) +
                         part * width;
  FetchLines(q, width * sizeof(float));
  for (std::int64_t i = 0; i < width; ++i) scaled[i] = q[i] * call.scale;
  return scaled;
}

void HostAttention::RunTile(int index, int thread) {
  FetchLines(&batch_, sizeof(batch_));
  const AttentionCall& call = batch_.call;
  const RowSpan& span = batch_.span;
  const int tiles = batch_.tiles;
  const int of_row = index / tiles;
  const int row = of_row / batch_.parts;
  const int part = of_row % batch_.parts;
  const int tile = index % tiles;
  const int position = span.position + batch_.first + row;
  const int keys = std::min(kTileKeys, position + 1 - tile * kTileKeys);
  if (keys <= 0) return;
  Progress& progress = progress_[thread];
  if (progress.batch != batch_.number) {
    progress = {.batch = batch_.number, .query = -1, .part = -1, .next = 0};
  }
  const int heads = call.heads / batch_.parts;
  float* const scores = thread_scratch_.floats() + thread * thread_floats_;
  float* const own = scores + heads * kTileKeys;
  const bool follows = progress.part == of_row && progress.next == tile;
  const int place = batch_.perturbed ? tiles - 1 - tile : tile;
  float* const to = follows ? own : Partials(row, part, place);
  // Its lines are where they were read last.
  if (thread != 0 && !follows) {
    FetchLinesToWrite(
        to, heads * sizeof(float) * (kPartialHeader + call.shape.head_dim));
  }
  const std::byte* const block = span.blocks[tile];
  const int kv_heads = call.shape.kv_heads / batch_.parts;
  kernels_.tile(call.shape,
                {.k = block + KOffset(call.shape, call.layer),
                 .v = block + VOffset(call.shape, call.layer),
                 .next = KeysAfter(index, thread),
                 .first_kv_head = part * kv_heads,
                 .kv_heads = kv_heads},
                keys, ScaledQuery(row, part, thread), heads, scores, to);
  if (follows) {
    kernels_.merge(own, heads, call.shape.head_dim, Partials(row, part, 0));
  }
  if (place != 0 && !follows) return;
  combined_[of_row].tiles = follows ? tile + 1 : 1;
  if (batch_.perturbed) return;
  progress.part = of_row;
  progress.next = tile + 1;
  if (progress.next == TilesOf(position)) FinishPart(row, part, thread);
}

float* HostAttention::Partials(int row, int part, int tile) const {
  const std::size_t head_floats = kPartialHeader + batch_.call.shape.head_dim;
  const std::size_t heads = batch_.call.heads;
  return partials_.floats() +
         ((static_cast<std::size_t>(row) * batch_.tiles + tile) * heads +
          part * (heads / batch_.parts)) *
             head_floats;
}

const std::byte* HostAttention::KeysAfter(int index, int thread) const {
  const int tile = index % batch_.tiles;
  int layer = batch_.call.layer;
  int next = tile + 1;
  const ThreadPool::Range share =
      pool_.ShareOf(batch_.rows * batch_.parts * batch_.tiles, thread);
  if (index + 1 == share.end && batch_.tiles > 1) {
    // As a rule the same rows are read in the next layer next.
    next = share.begin % batch_.tiles;
    ++layer;
  }
  if (next == batch_.tiles || layer == batch_.call.shape.layers) return nullptr;
  return batch_.span.blocks[next] + KOffset(batch_.call.shape, layer);
}

void HostAttention::FinishPart(int row, int part, int thread) {
  const int heads = batch_.call.heads / batch_.parts;
  int& combined = combined_[row * batch_.parts + part].tiles;
  for (int head = part * heads; head < (part + 1) * heads; ++head) {
    CombineHead(row, head, combined, thread);
  }
  combined = kFinished;
}

void HostAttention::CombineHead(int row, int head, int tiles, int thread) {
  const AttentionCall& call = batch_.call;
  const int dims = call.shape.head_dim;
  const std::size_t head_floats = kPartialHeader + dims;
  const std::size_t tile_floats = call.heads * head_floats;
  const int combined =
      combined_[row * batch_.parts + head / (call.heads / batch_.parts)].tiles;
  const float* const partials = Partials(row, 0, 0) + head * head_floats;
  float* const out =
      call.out +
      (static_cast<std::int64_t>(batch_.span.first_row + batch_.first + row) *
           call.heads +
       head) *
          dims;
  kernels_.combine(partials, partials + combined * tile_floats,
                   tiles - combined, tile_floats, dims,
                   thread_scratch_.floats() + thread * thread_floats_, out);
}

void HostAttention::CombineTiles() {
  const AttentionCall& call = batch_.call;
  const int position = batch_.span.position + batch_.first;
  const int heads = call.heads / batch_.parts;
  int merges = 0;
  int left = 0;
  for (int i = 0; i < batch_.rows * batch_.parts; ++i) {
    const int combined = combined_[i].tiles;
    if (combined == kFinished) continue;
    merges += (TilesOf(position + i / batch_.parts) - combined) * heads;
    ++left;
  }
  if (left == 0) return;
  // What another thread has left: all of it on its way at once.
  if (batch_.rows == 1) {
    FetchLines(partials_.data(), sizeof(float) * call.heads *
                                     (kPartialHeader + call.shape.head_dim));
  }
  const auto combine = [&](int index, int thread) {
    const int row = index / call.heads;
    const int head = index % call.heads;
    if (combined_[row * batch_.parts + head / heads].tiles == kFinished) return;
    CombineHead(row, head, TilesOf(position + row), thread);
  };
  const int outputs = batch_.rows * call.heads;
  if (merges >= kSharedMerges) {
    pool_.For(outputs, combine);
  } else {
    for (int index = 0; index < outputs; ++index) combine(index, 0);
  }
}

}  // namespace holdfast::kernels
