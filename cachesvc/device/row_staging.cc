#include "cachesvc/device/row_staging.h"

namespace holdfast::cachesvc {

RowStaging::RowStaging(std::size_t pieces, std::size_t piece_bytes)
    : piece_bytes_(PagesUp(piece_bytes)) {
  for (std::size_t i = 0; i < pieces; ++i) {
    pieces_.emplace_back(piece_bytes_);
    free_.push_back(pieces_.back().data());
  }
}

std::vector<std::span<std::byte>> RowStaging::pieces() {
  std::vector<std::span<std::byte>> spans;
  for (AlignedBuffer& piece : pieces_) spans.push_back(piece.span());
  return spans;
}

std::shared_ptr<std::byte> RowStaging::Take(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline, [this] { return !free_.empty(); })) {
    return nullptr;
  }
  std::byte* const piece = free_.back();
  free_.pop_back();
  return {piece, [self = shared_from_this()](std::byte* taken) {
            self->GiveBack(taken);
          }};
}

void RowStaging::GiveBack(std::byte* piece) {
  const std::lock_guard lock(mutex_);
  free_.push_back(piece);
  changed_.notify_all();
}

}  // namespace holdfast::cachesvc
