// Restores from the state store.
#ifndef HOLDFAST_CACHESVC_RESTORE_SNAPSHOT_SOURCE_H_
#define HOLDFAST_CACHESVC_RESTORE_SNAPSHOT_SOURCE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cachesvc/restore/piece_source.h"
#include "cachesvc/statestore/state_store.h"

namespace holdfast::cachesvc {

// Holds the snapshot: what the store evicts meanwhile stays.
class SnapshotSource final : public PieceSource {
 public:
  // `snapshot` has a state at `position`; else NotFound.
  static absl::StatusOr<std::unique_ptr<PieceSource>> Make(
      std::shared_ptr<const Snapshot> snapshot, std::uint64_t position);

  const std::vector<SourcePiece>& pieces() const override { return pieces_; }
  std::uint64_t block_bytes() const override {
    return snapshot_->spec.layout.BlockBytes();
  }
  std::uint64_t state_bytes() const override {
    return snapshot_->states[state_].size();
  }
  // Copies at once.
  absl::Status StartRead(std::size_t piece, std::span<std::byte> memory,
                         std::shared_ptr<const void> keep_alive) override;
  absl::Status FinishRead(std::size_t, Deadline) override {
    return absl::OkStatus();
  }

 private:
  SnapshotSource(std::shared_ptr<const Snapshot> snapshot, std::size_t state,
                 std::uint64_t position);

  const std::shared_ptr<const Snapshot> snapshot_;
  const std::size_t state_;
  std::vector<SourcePiece> pieces_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_RESTORE_SNAPSHOT_SOURCE_H_
