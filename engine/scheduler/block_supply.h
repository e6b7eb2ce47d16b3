// Blocks for a running sequence.
#ifndef HOLDFAST_ENGINE_SCHEDULER_BLOCK_SUPPLY_H_
#define HOLDFAST_ENGINE_SCHEDULER_BLOCK_SUPPLY_H_

#include "engine/resume/sequence.h"
#include "engine/scheduler/engine_state.h"

namespace holdfast::engine {

// Makes the sequence's table long enough for `rows` rows. When the pool has
// neither a free nor a cached block left, stores give theirs up, then the
// seats' residents, the one used longest ago first. False when that was not
// enough: the table has what there was. A scratch sequence takes nothing from
// anybody.
[[nodiscard]] bool HaveBlocks(EngineState& state, Sequence& sequence, int rows);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_BLOCK_SUPPLY_H_
