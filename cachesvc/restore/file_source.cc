#include "cachesvc/restore/file_source.h"

#include <utility>

#include "shared/cache_layout.h"

namespace holdfast::cachesvc {

absl::StatusOr<std::unique_ptr<PieceSource>> FileSource::Open(
    ChunkStore& store, const RestoreRequest& request, Deadline deadline) {
  auto restore = Restore::Open(store, request, deadline);
  if (!restore.ok()) return restore.status();
  return std::unique_ptr<PieceSource>(new FileSource(*std::move(restore)));
}

FileSource::FileSource(std::unique_ptr<Restore> restore)
    : restore_(std::move(restore)) {
  const auto state_offset =
      static_cast<std::int64_t>(restore_->state().payload_offset);
  for (const RestorePiece& piece : restore_->pieces()) {
    SourcePiece out{.bytes = piece.bytes};
    out.begin = static_cast<std::int64_t>(piece.payload_offset);
    if (piece.what == RestorePiece::What::kRows) {
      out.begin += static_cast<std::int64_t>(piece.chunk_position /
                                             kBlockTokens * block_bytes());
    } else {
      out.what = SourcePiece::What::kState;
      out.begin -= state_offset;
    }
    pieces_.push_back(out);
  }
}

}  // namespace holdfast::cachesvc
