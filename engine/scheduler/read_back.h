// What the engine does with the conversations that were resident at its last
// planned stop.
#ifndef HOLDFAST_ENGINE_SCHEDULER_READ_BACK_H_
#define HOLDFAST_ENGINE_SCHEDULER_READ_BACK_H_

#include <functional>

#include "engine/scheduler/engine_state.h"

namespace holdfast::engine {

// Before the first request: makes the conversations that were resident at the
// last planned stop resident again, out of the session spill, with their line
// and message anchors, one a seat; the one used last has the first. After a
// start that follows no such stop there are none. What cannot be read back is
// no loss: lookups find the file as any other. Never longer than computing the
// rows would take; `stop` is asked between pieces. Says in the log what came of
// each. On the engine thread; no seat has a resident yet.
void ReadBackResidents(EngineState& state, const std::function<bool()>& stop);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_READ_BACK_H_
