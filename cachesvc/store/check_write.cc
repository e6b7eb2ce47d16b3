#include "cachesvc/store/check_write.h"

#include <algorithm>
#include <string>

#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError("cannot be stored: " + what);
}

bool Aligned(const std::byte* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % kBlockAlignment == 0;
}

absl::Status CheckChunk(const ManifestWrite& write, std::size_t i) {
  const ChunkWrite& chunk = write.chunks[i];
  const std::uint64_t first = i * write.layout.grid_tokens;
  const std::uint64_t rows = std::min<std::uint64_t>(
      write.layout.grid_tokens, write.key_ids.size() - first);
  const std::uint64_t blocks = (rows + kBlockTokens - 1) / kBlockTokens;
  if (chunk.block_count() > 0 && chunk.block_count() != blocks) {
    return Bad(fmt::format("chunk {} has {} blocks, not {}", i,
                           chunk.block_count(), blocks));
  }
  if (chunk.blocks_elsewhere > 0 && (!chunk.blocks.empty() || !write.fetch)) {
    return Bad(fmt::format("chunk {} lies in two places, or in none", i));
  }
  if (!std::all_of(chunk.blocks.begin(), chunk.blocks.end(), Aligned)) {
    return Bad(fmt::format("a block of chunk {} is not aligned", i));
  }
  const bool grid = chunk.provenance == Provenance::kGrid;
  if (grid &&
      (first + rows > write.taint || rows != write.layout.grid_tokens)) {
    return Bad(fmt::format("chunk {} is no chunk of the grid", i));
  }
  if (!grid && write.kind == FileKind::kAnchor) {
    return Bad(fmt::format("chunk {} holds session rows under an anchor", i));
  }
  if (!grid && chunk.block_count() == 0 &&
      chunk.sums.size() != write.layout.views.size()) {
    return Bad(fmt::format("chunk {} has neither rows nor sums", i));
  }
  if (!chunk.sums.empty() && chunk.sums.size() != write.layout.views.size()) {
    return Bad(fmt::format("chunk {} has {} sums", i, chunk.sums.size()));
  }
  return absl::OkStatus();
}

absl::Status CheckStates(const ManifestWrite& write) {
  if (write.states.empty()) return Bad("no state");
  for (const StateWrite& state : write.states) {
    if (state.position == 0 || state.position > write.key_ids.size()) {
      return Bad(fmt::format("a state at {}", state.position));
    }
    if (state.bytes.size() != StateBytes(write.layout) ||
        !Aligned(state.bytes.data())) {
      return Bad(fmt::format("the state at {} has {} bytes", state.position,
                             state.bytes.size()));
    }
    if (state.provenance == Provenance::kGrid && state.position > write.taint) {
      return Bad(fmt::format("the state at {} is tainted", state.position));
    }
  }
  if (write.kind == FileKind::kSession) return absl::OkStatus();
  const StateWrite& state = write.states.front();
  if (write.states.size() != 1 || state.position != write.key_ids.size() ||
      state.position % write.layout.grid_tokens != 0 ||
      state.provenance != Provenance::kGrid || write.taint != kNoTaint) {
    return Bad("an anchor has one grid state at its line");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckWrite(const ManifestWrite& write) {
  if (write.kind == FileKind::kChunk) return Bad("a chunk alone");
  const std::uint64_t grid = write.layout.grid_tokens;
  if (grid == 0 || grid % kBlockTokens != 0 || write.layout.views.empty() ||
      write.layout.sections.empty()) {
    return Bad("a layout without grid, views or sections");
  }
  if (write.key_ids.empty() ||
      write.chunks.size() != (write.key_ids.size() + grid - 1) / grid) {
    return Bad(fmt::format("{} chunks for {} rows", write.chunks.size(),
                           write.key_ids.size()));
  }
  for (std::size_t i = 0; i < write.chunks.size(); ++i) {
    if (auto s = CheckChunk(write, i); !s.ok()) return s;
  }
  return CheckStates(write);
}

}  // namespace holdfast::cachesvc
