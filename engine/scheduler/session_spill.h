// Whole conversations kept outside the pool: in the session spill at a planned
// stop and before they lose rows, in the state store after each turn.
#ifndef HOLDFAST_ENGINE_SCHEDULER_SESSION_SPILL_H_
#define HOLDFAST_ENGINE_SCHEDULER_SESSION_SPILL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "engine/scheduler/engine_state.h"

namespace holdfast::engine {

// Stores the resident conversation of every seat and those that are parked with
// their end, whatever their length: rows, the state behind the last row, the
// newest line anchors, the turn's message anchor and the newest one. Residents
// go first, then the one used last; of one session only what ended last, for a
// newer file replaces an older. Waits until all are durable, at most until
// `deadline`, which is asked for again and again: it may come nearer. Says in
// the log what came of each. The residents are read back by the next start. On
// the engine thread, when nothing runs; all stay.
using SpillDeadline = std::function<std::chrono::steady_clock::time_point()>;
void SpillConversations(EngineState& state, const SpillDeadline& deadline);

// How much of a planned stop's time (deadlines::Drain) is kept for that, with a
// pool of so many bytes: requests that run on are cancelled so much earlier.
std::chrono::milliseconds SpillTime(std::uint64_t pool_bytes);

// Queues one that is about to lose rows to be stored, and waits for nobody: the
// blocks that it loses come back when that has ended, at most twice as long as
// it takes at the rate that was measured. Where rows are copied to be lent and
// other stores have that memory, it waits for them first, within that time.
// Past it what is not written is lost, counted, and what was written first
// stays as a shorter prefix. A conversation that cannot be stored is lost
// without a word but a counter's.
void SpillBeforeLoss(EngineState& state, const Sequence& sequence);

// Blocks will come back when such a store ends: EngineState::bell rings then,
// or its deadline passes. To be waited for before more is taken from anybody.
bool SpillsUnderWay(EngineState& state);

// So many blocks SpillBeforeLoss needs of the pool, for states.
int BlocksToStageSpill(const EngineState& state);

struct SavedSession {
  absl::Status status;      // NotFound, Unavailable, FailedPrecondition
  std::string session_key;  // that the file has
  int rows = 0;
};

// Queues a conversation for the session spill, pinned: the resident or parked
// one of that key, or, without a key, the one used last. `done` is called once,
// from any thread, when it is durable or is not going to be. Waits for nobody.
// On the engine thread, between two steps.
void SaveSession(EngineState& state, const std::string& session_key,
                 std::function<void(const SavedSession&)> done);

// Queues the seat's resident with its turn's anchor for the state store, when
// it fits into an entry there. Waits for nobody. On the engine thread, after a
// request.
void StoreTurn(EngineState& state, const Seat& seat);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_SESSION_SPILL_H_
