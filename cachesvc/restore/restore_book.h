// Restores under way.
#ifndef HOLDFAST_CACHESVC_RESTORE_RESTORE_BOOK_H_
#define HOLDFAST_CACHESVC_RESTORE_RESTORE_BOOK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachesvc/restore/piece_source.h"
#include "cachesvc/restore/staging_slots.h"

namespace holdfast::cachesvc {

// Checked bytes of a slot that is the engine's now.
struct HandedPiece {
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
  SourcePiece::What what = SourcePiece::What::kRows;
  std::uint64_t slot_offset = 0;
  std::uint64_t target_offset = 0;
  std::uint64_t bytes = 0;
};

struct HandedPieces {
  std::vector<HandedPiece> pieces;
  bool last = false;
};

struct ReturnedSlot {
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
};

struct RestoreStart {
  std::uint64_t attach = 0;  // the epoch of the call
  std::uint64_t id = 0;      // the engine's choice
  std::uint64_t position = 0;
  std::uint64_t have_rows = 0;  // the engine has the rows below
  Deadline deadline;
  // Called once, when the last piece is handed over.
  std::function<void()> on_done;
};

// Reads run ahead of the engine by as many slots as there are. Thread-safe; one
// call at a time for each restore.
class RestoreBook {
 public:
  static constexpr std::size_t kMostRestores = 16;
  // Ids that ended before they began; of more the oldest are forgotten, and
  // what begins under those goes at its deadline.
  static constexpr std::size_t kMostEndedEarly = 256;

  // `slots` outlive this, and what the sources refer to.
  explicit RestoreBook(StagingSlots& slots) : slots_(slots) {}

  // The bytes that will be handed over. AlreadyExists for an id in use,
  // Cancelled for one that has ended already, FailedPrecondition for one of an
  // attach that has ended, ResourceExhausted when there are too many.
  absl::StatusOr<std::uint64_t> Begin(std::unique_ptr<PieceSource> source,
                                      const RestoreStart& start);
  // Takes slots back, then waits for the next pieces. NotFound: no such
  // restore, or it failed before. After an error nothing more comes.
  absl::StatusOr<HandedPieces> Next(std::uint64_t id,
                                    std::span<const ReturnedSlot> returned);
  // Unknown ids may be of restores whose files are being opened: given up
  // meanwhile, those must not begin any more.
  void End(std::span<const std::uint64_t> ids);
  // All of them: the engine has gone. From now on those of `attach` begin.
  void Clear(std::uint64_t attach = 0);

  std::size_t live() const;
  // Slots that came back under a generation that was not lent.
  std::uint64_t stale_returns() const;

 private:
  class Active;

  // Those past their deadline that have lent nothing: whoever began them has
  // gone without a word. mutex_ is held.
  void Reap(std::vector<std::shared_ptr<Active>>& ended);

  StagingSlots& slots_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Active>>
      active_;                             // guarded by mutex_
  std::deque<std::uint64_t> ended_early_;  // guarded by mutex_
  std::uint64_t attach_ = 0;               // guarded by mutex_
  std::uint64_t stale_ = 0;                // guarded by mutex_
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_RESTORE_RESTORE_BOOK_H_
