// Whole conversations kept outside the pool: in the session spill at a planned
// stop, in the state store after each turn.
#ifndef HOLDFAST_ENGINE_SCHEDULER_SESSION_SPILL_H_
#define HOLDFAST_ENGINE_SCHEDULER_SESSION_SPILL_H_

#include <chrono>

#include "engine/scheduler/engine_state.h"

namespace holdfast::engine {

// Stores the resident conversation of every seat, whatever its length: rows,
// the state behind its last row and its newest line anchors. The one used last
// goes first. Waits until all are durable, at most until `deadline`. Says in
// the log what came of each. What was stored is read back by the next start. On
// the engine thread, when nothing runs; residents stay.
void SpillResidents(EngineState& state,
                    std::chrono::steady_clock::time_point deadline);

// Queues the seat's resident for the state store, when it fits into an entry
// there. Waits for nobody. On the engine thread, after a request.
void StoreTurn(EngineState& state, const Seat& seat);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_SESSION_SPILL_H_
