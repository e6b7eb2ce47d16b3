// Restores from files.
#ifndef HOLDFAST_CACHESVC_RESTORE_FILE_SOURCE_H_
#define HOLDFAST_CACHESVC_RESTORE_FILE_SOURCE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cachesvc/restore/piece_source.h"
#include "cachesvc/store/chunk_store.h"
#include "cachesvc/store/restore.h"

namespace holdfast::cachesvc {

class FileSource final : public PieceSource {
 public:
  // Errors as of Restore::Open. The store outlives the result.
  static absl::StatusOr<std::unique_ptr<PieceSource>> Open(
      ChunkStore& store, const RestoreRequest& request, Deadline deadline);

  const std::vector<SourcePiece>& pieces() const override { return pieces_; }
  std::uint64_t block_bytes() const override {
    return restore_->layout().BlockBytes();
  }
  std::uint64_t state_bytes() const override {
    return StateBytes(restore_->layout());
  }
  absl::Status StartRead(std::size_t piece, std::span<std::byte> memory,
                         std::shared_ptr<const void> keep_alive) override {
    return restore_->StartRead(piece, memory, std::move(keep_alive));
  }
  absl::Status FinishRead(std::size_t piece, Deadline deadline) override {
    return restore_->FinishRead(piece, deadline);
  }

 private:
  explicit FileSource(std::unique_ptr<Restore> restore);

  const std::unique_ptr<Restore> restore_;
  std::vector<SourcePiece> pieces_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_RESTORE_FILE_SOURCE_H_
