#include "kernels/cuda/launch_tables.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "shared/cache_layout.h"

namespace holdfast::kernels::cuda {
namespace {

std::size_t BlocksOf(const RowSpan& span) {
  return static_cast<std::size_t>(span.position + span.rows + kBlockTokens -
                                  1) /
         kBlockTokens;
}

bool SameSpan(const RowSpan& a, const RowSpan& b) {
  return a.first_row == b.first_row && a.position == b.position &&
         a.rows == b.rows && a.sections == b.sections;
}

}  // namespace

StatusOr<LaunchTables> LaunchTables::Make(cudaStream_t stream, int max_rows,
                                          int max_positions) {
  LaunchTables tables;
  tables.stream_ = stream;
  tables.max_rows_ = max_rows;
  // Every row may be a sequence of its own, as long as the model allows.
  const std::size_t blocks =
      static_cast<std::size_t>(max_positions + kBlockTokens - 1) / kBlockTokens;
  const std::size_t bytes =
      max_rows * (sizeof(RowPlace) + sizeof(SpanPlace) +
                  std::max<std::size_t>(1, blocks) * sizeof(std::byte*));
  for (Slot& slot : tables.slots_) {
    HF_ASSIGN_OR_RETURN(slot.pinned, PinnedMemory::Make(bytes, "block tables"));
    HF_ASSIGN_OR_RETURN(slot.device, DeviceMemory::Make(bytes, "block tables"));
    HF_ASSIGN_OR_RETURN(slot.copied, MakeEvent());
  }
  for (Slot& slot : tables.ids_) {
    const std::size_t ids = max_rows * sizeof(std::int32_t);
    HF_ASSIGN_OR_RETURN(slot.pinned, PinnedMemory::Make(ids, "token ids"));
    HF_ASSIGN_OR_RETURN(slot.device, DeviceMemory::Make(ids, "token ids"));
    HF_ASSIGN_OR_RETURN(slot.copied, MakeEvent());
  }
  tables.spans_.reserve(max_rows);
  tables.blocks_.reserve(max_rows * std::max<std::size_t>(1, blocks));
  return tables;
}

Status LaunchTables::Reuse(Slot& slot) {
  if (!slot.in_flight) return OkStatus();
  slot.in_flight = false;
  HF_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(slot.copied.get()),
                          "waiting for a table's copy");
  return OkStatus();
}

Status LaunchTables::CopyOut(Slot& slot, std::size_t bytes) {
  HF_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(slot.device.data(), slot.pinned.data(), bytes,
                      cudaMemcpyHostToDevice, stream_),
      "copying a table");
  HF_CUDA_RETURN_IF_ERROR(cudaEventRecord(slot.copied.get(), stream_),
                          "marking a table's copy");
  slot.in_flight = true;
  return OkStatus();
}

StatusOr<LaunchTable> LaunchTables::Get(std::span<const RowSpan> spans) {
  std::size_t blocks = 0;
  int rows = 0;
  int end_row = 0;
  for (const RowSpan& span : spans) {
    blocks += BlocksOf(span);
    rows += span.rows;
    end_row = std::max(end_row, span.first_row + span.rows);
  }
  if (std::max(rows, end_row) > max_rows_ || blocks > blocks_.capacity()) {
    return InvalidArgument("a launch of " + std::to_string(rows) +
                           " rows passes the " + std::to_string(max_rows_) +
                           " prepared for");
  }
  bool same = spans.size() == spans_.size() && blocks == blocks_.size() &&
              std::equal(spans.begin(), spans.end(), spans_.begin(), SameSpan);
  std::size_t at = 0;
  for (const RowSpan& span : spans) {
    if (!same) break;
    const std::size_t count = BlocksOf(span);
    same = std::equal(span.blocks, span.blocks + count, &blocks_[at]);
    at += count;
  }
  if (same && !spans.empty()) return table_;
  spans_.assign(spans.begin(), spans.end());
  blocks_.clear();
  for (const RowSpan& span : spans) {
    blocks_.insert(blocks_.end(), span.blocks, span.blocks + BlocksOf(span));
  }
  table_ = {};
  table_.row_count = rows;
  table_.span_count = static_cast<int>(spans.size());
  for (const RowSpan& span : spans) {
    table_.end_row = std::max(table_.end_row, span.first_row + span.rows);
    table_.longest_span = std::max(table_.longest_span, span.rows);
    table_.most_positions =
        std::max(table_.most_positions, span.position + span.rows);
  }
  turn_ ^= 1;
  Slot& slot = slots_[turn_];
  const Status status = Fill(spans, blocks, slot);
  if (!status.ok()) {
    spans_.clear();  // nothing is at hand
    return status;
  }
  return table_;
}

// [block pointers][spans][rows]
Status LaunchTables::Fill(std::span<const RowSpan> spans, std::size_t blocks,
                          Slot& slot) {
  HF_RETURN_IF_ERROR(Reuse(slot));
  const std::size_t spans_at = blocks * sizeof(std::byte*);
  const std::size_t rows_at = spans_at + spans.size() * sizeof(SpanPlace);
  std::memcpy(slot.pinned.data(), blocks_.data(), spans_at);
  auto* span_place =
      reinterpret_cast<SpanPlace*>(slot.pinned.data() + spans_at);
  auto* row_place = reinterpret_cast<RowPlace*>(slot.pinned.data() + rows_at);
  const auto* device_blocks =
      reinterpret_cast<std::byte* const*>(slot.device.data());
  for (const RowSpan& span : spans) {
    *span_place++ = {device_blocks, span.sections, span.first_row,
                     span.position, span.rows};
    for (int i = 0; i < span.rows; ++i) {
      const int position = span.position + i;
      *row_place++ = {span.blocks[position / kBlockTokens], position,
                      span.first_row + i};
    }
    device_blocks += BlocksOf(span);
  }
  table_.spans =
      reinterpret_cast<const SpanPlace*>(slot.device.data() + spans_at);
  table_.rows = reinterpret_cast<const RowPlace*>(slot.device.data() + rows_at);
  return CopyOut(slot, rows_at + table_.row_count * sizeof(RowPlace));
}

StatusOr<const std::int32_t*> LaunchTables::Ids(
    std::span<const std::int32_t> ids) {
  if (ids.size() > static_cast<std::size_t>(max_rows_)) {
    return InvalidArgument(std::to_string(ids.size()) +
                           " token ids pass the rows prepared for");
  }
  ids_turn_ ^= 1;
  Slot& slot = ids_[ids_turn_];
  HF_RETURN_IF_ERROR(Reuse(slot));
  std::memcpy(slot.pinned.data(), ids.data(), ids.size_bytes());
  HF_RETURN_IF_ERROR(CopyOut(slot, ids.size_bytes()));
  return slot.device.as<const std::int32_t>();
}

std::size_t LaunchTables::device_bytes() const {
  return 2 * (slots_[0].device.bytes() + ids_[0].device.bytes());
}

}  // namespace holdfast::kernels::cuda
