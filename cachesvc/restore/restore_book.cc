#include "cachesvc/restore/restore_book.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <utility>

#include "fmt/format.h"
#include "shared/cache_layout.h"

namespace holdfast::cachesvc {

// One restore. Its calls come one at a time; the mutex is for those that do
// not.
class RestoreBook::Active {
 public:
  Active(std::unique_ptr<PieceSource> source, const RestoreStart& start,
         StagingSlots& slots)
      : deadline_(start.deadline),
        on_done_(start.on_done),
        slots_(slots),
        rows_begin_(start.have_rows / kBlockTokens * source->block_bytes()),
        rows_end_((start.position + kBlockTokens - 1) / kBlockTokens *
                  source->block_bytes()),
        source_(std::move(source)) {
    for (std::size_t i = 0; i < source_->pieces().size(); ++i) {
      if (Target(i).bytes > 0) wanted_.push_back(i);
    }
  }

  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const std::size_t piece : wanted_) sum += Target(piece).bytes;
    return sum;
  }

  // Returns how many of them were not lent.
  std::uint64_t Return(std::span<const ReturnedSlot> returned) {
    const std::lock_guard lock(mutex_);
    std::uint64_t stale = 0;
    for (const ReturnedSlot& slot : returned) {
      const auto at = lent_.find(slot.slot);
      if (at == lent_.end() || at->second->generation != slot.generation) {
        ++stale;
      } else {
        lent_.erase(at);
      }
    }
    return stale;
  }

  // Whether nobody waits for it any more. A slot that is lent comes back by the
  // engine's answer alone: it may still copy out of it.
  bool Forgotten(Deadline now) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    return lock.owns_lock() && now >= deadline_ && lent_.empty();
  }

  // What it reads from is let go with the last piece, or the first error: the
  // engine may say late that a restore has ended.
  absl::StatusOr<HandedPieces> Next() {
    const std::lock_guard lock(mutex_);
    if (source_ == nullptr) return ended_;
    absl::StatusOr<HandedPieces> handed = Read();
    if (handed.ok() && !handed->last) return handed;
    if (handed.ok()) {
      ended_ = HandedPieces{.pieces = {}, .last = true};
    } else {
      ended_ = absl::NotFoundError("the restore failed before");
    }
    source_.reset();
    reading_.clear();
    return handed;
  }

 private:
  absl::StatusOr<HandedPieces> Read() {
    if (auto s = StartReads(); !s.ok()) return s;
    HandedPieces handed;
    // Half of what is under way: the engine copies it while the rest is read.
    const std::size_t most = std::max<std::size_t>(1, reading_.size() / 2);
    for (std::size_t i = 0; i < most && !reading_.empty(); ++i) {
      Reading& next = reading_.front();
      if (auto s = source_->FinishRead(next.piece, deadline_); !s.ok()) {
        return s;
      }
      HandedPiece piece = Target(next.piece);
      piece.slot = next.slot->index;
      piece.generation = next.slot->generation;
      handed.pieces.push_back(piece);
      lent_[piece.slot] = std::move(next.slot);
      reading_.pop_front();
    }
    handed.last = reading_.empty() && next_ == wanted_.size();
    if (handed.last && on_done_) std::exchange(on_done_, nullptr)();
    return handed;
  }

  struct Reading {
    std::size_t piece;
    StagingSlots::SlotRef slot;
  };

  // Others find slots, however far this one could read ahead.
  bool MayTake() const {
    const std::size_t share = std::max<std::size_t>(1, slots_.slots() / 4);
    return reading_.size() + lent_.size() < share ||
           slots_.slots() - slots_.used() > share;
  }

  absl::Status StartReads() {
    while (next_ < wanted_.size()) {
      if (!reading_.empty() && !MayTake()) return absl::OkStatus();
      StagingSlots::SlotRef slot = slots_.TryTake();
      if (slot == nullptr && reading_.empty()) {
        // Reads of a restore that was given up may hold them a little longer.
        slot = slots_.Take(deadline_);
        if (slot == nullptr) {
          return absl::DeadlineExceededError("no staging slot came free");
        }
      }
      if (slot == nullptr) return absl::OkStatus();
      const std::size_t piece = wanted_[next_];
      if (auto s = source_->StartRead(piece, slot->memory, slot); !s.ok()) {
        return s;
      }
      reading_.push_back({piece, std::move(slot)});
      ++next_;
    }
    return absl::OkStatus();
  }

  // Where a piece goes; no bytes for one that the engine has no use for.
  HandedPiece Target(std::size_t i) const {
    const SourcePiece& piece = source_->pieces()[i];
    const bool rows = piece.what == SourcePiece::What::kRows;
    const std::int64_t first =
        rows ? static_cast<std::int64_t>(rows_begin_) : 0;
    const auto end =
        static_cast<std::int64_t>(rows ? rows_end_ : source_->state_bytes());
    const std::int64_t from = std::max(piece.begin, first);
    const std::int64_t to =
        std::min(piece.begin + static_cast<std::int64_t>(piece.bytes), end);
    HandedPiece target{.what = piece.what};
    if (from >= to) return target;
    target.slot_offset = static_cast<std::uint64_t>(from - piece.begin);
    target.target_offset = static_cast<std::uint64_t>(from);
    target.bytes = static_cast<std::uint64_t>(to - from);
    return target;
  }

  const Deadline deadline_;
  std::function<void()> on_done_;
  StagingSlots& slots_;
  const std::uint64_t rows_begin_;
  const std::uint64_t rows_end_;
  std::vector<std::size_t> wanted_;

  std::mutex mutex_;  // guards all below
  std::unique_ptr<PieceSource> source_;
  absl::StatusOr<HandedPieces> ended_;  // what Next() says without a source
  std::size_t next_ = 0;                // of wanted_, not started yet
  std::deque<Reading> reading_;         // in order
  std::map<std::uint32_t, StagingSlots::SlotRef> lent_;
};

absl::StatusOr<std::uint64_t> RestoreBook::Begin(
    std::unique_ptr<PieceSource> source, const RestoreStart& start) {
  auto active = std::make_shared<Active>(std::move(source), start, slots_);
  const std::uint64_t bytes = active->bytes();
  std::vector<std::shared_ptr<Active>> ended;  // destroyed outside the lock
  const std::lock_guard lock(mutex_);
  if (start.attach != attach_) {
    return absl::FailedPreconditionError(
        fmt::format("restore {}: its attach has ended", start.id));
  }
  if (const auto at = std::ranges::find(ended_early_, start.id);
      at != ended_early_.end()) {
    ended_early_.erase(at);
    return absl::CancelledError(
        fmt::format("restore {} was given up", start.id));
  }
  Reap(ended);
  if (active_.contains(start.id)) {
    return absl::AlreadyExistsError(
        fmt::format("restore {} is under way", start.id));
  }
  if (active_.size() >= kMostRestores) {
    return absl::ResourceExhaustedError(
        fmt::format("{} restores are under way", active_.size()));
  }
  active_[start.id] = std::move(active);
  return bytes;
}

absl::StatusOr<HandedPieces> RestoreBook::Next(
    std::uint64_t id, std::span<const ReturnedSlot> returned) {
  std::shared_ptr<Active> active;
  {
    const std::lock_guard lock(mutex_);
    const auto at = active_.find(id);
    if (at == active_.end()) {
      return absl::NotFoundError(fmt::format("no restore {}", id));
    }
    active = at->second;
  }
  const std::uint64_t stale = active->Return(returned);
  if (stale > 0) {
    const std::lock_guard lock(mutex_);
    stale_ += stale;
  }
  return active->Next();
}

void RestoreBook::End(std::span<const std::uint64_t> ids) {
  std::vector<std::shared_ptr<Active>> ended;  // destroyed outside the lock
  const std::lock_guard lock(mutex_);
  for (const std::uint64_t id : ids) {
    const auto at = active_.find(id);
    if (at == active_.end()) {
      ended_early_.push_back(id);
      continue;
    }
    ended.push_back(std::move(at->second));
    active_.erase(at);
  }
  while (ended_early_.size() > kMostEndedEarly) ended_early_.pop_front();
}

void RestoreBook::Reap(std::vector<std::shared_ptr<Active>>& ended) {
  const auto now = std::chrono::steady_clock::now();
  for (auto it = active_.begin(); it != active_.end();) {
    const auto next = std::next(it);
    if (it->second->Forgotten(now)) {
      ended.push_back(std::move(it->second));
      active_.erase(it);
    }
    it = next;
  }
}

void RestoreBook::Clear(std::uint64_t attach) {
  std::map<std::uint64_t, std::shared_ptr<Active>> ended;
  const std::lock_guard lock(mutex_);
  attach_ = attach;
  ended_early_.clear();
  ended.swap(active_);
}

std::size_t RestoreBook::live() const {
  const std::lock_guard lock(mutex_);
  return active_.size();
}

std::uint64_t RestoreBook::stale_returns() const {
  const std::lock_guard lock(mutex_);
  return stale_;
}

}  // namespace holdfast::cachesvc
