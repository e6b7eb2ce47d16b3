#include "cachesvc/restore/snapshot_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cachesvc/format/cache_file.h"
#include "fmt/format.h"
#include "shared/cache_layout.h"

namespace holdfast::cachesvc {

absl::StatusOr<std::unique_ptr<PieceSource>> SnapshotSource::Make(
    std::shared_ptr<const Snapshot> snapshot, std::uint64_t position) {
  const auto& states = snapshot->spec.states;
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (states[i].position != position) continue;
    return std::unique_ptr<PieceSource>(
        new SnapshotSource(std::move(snapshot), i, position));
  }
  return absl::NotFoundError(
      fmt::format("the snapshot has no state at {}", position));
}

SnapshotSource::SnapshotSource(std::shared_ptr<const Snapshot> snapshot,
                               std::size_t state, std::uint64_t position)
    : snapshot_(std::move(snapshot)), state_(state) {
  const auto cut = [this](SourcePiece::What what, std::uint64_t bytes) {
    for (std::uint64_t at = 0; at < bytes; at += kIoBytes) {
      pieces_.push_back({what, static_cast<std::int64_t>(at),
                         std::min(kIoBytes, bytes - at)});
    }
  };
  cut(SourcePiece::What::kRows,
      (position + kBlockTokens - 1) / kBlockTokens * block_bytes());
  cut(SourcePiece::What::kState, state_bytes());
}

absl::Status SnapshotSource::StartRead(std::size_t piece,
                                       std::span<std::byte> memory,
                                       std::shared_ptr<const void>) {
  const SourcePiece& p = pieces_[piece];
  if (memory.size() < p.bytes) {
    return absl::InvalidArgumentError(
        fmt::format("{} bytes for a piece of {}", memory.size(), p.bytes));
  }
  const auto begin = static_cast<std::uint64_t>(p.begin);
  if (p.what == SourcePiece::What::kState) {
    std::memcpy(memory.data(), snapshot_->states[state_].data() + begin,
                p.bytes);
    return absl::OkStatus();
  }
  for (std::uint64_t done = 0; done < p.bytes;) {
    const std::uint64_t at = begin + done;
    const std::uint64_t bytes =
        std::min(p.bytes - done, block_bytes() - at % block_bytes());
    std::memcpy(
        memory.data() + done,
        snapshot_->blocks[at / block_bytes()].data() + at % block_bytes(),
        bytes);
    done += bytes;
  }
  return absl::OkStatus();
}

}  // namespace holdfast::cachesvc
