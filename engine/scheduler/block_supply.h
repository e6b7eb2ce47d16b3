// Blocks for a running sequence.
#ifndef HOLDFAST_ENGINE_SCHEDULER_BLOCK_SUPPLY_H_
#define HOLDFAST_ENGINE_SCHEDULER_BLOCK_SUPPLY_H_

#include <span>

#include "engine/resume/sequence.h"
#include "engine/scheduler/engine_state.h"
#include "engine/scheduler/seat_claim.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {

enum class Supply {
  kHave,
  kWait,  // for a spill under way: to be asked again
  kNone,  // the table has what there was
};

// Makes the sequence's table long enough for `rows` rows. When the pool has
// neither a free nor a cached block left, stores give theirs up; then the
// resident that the request displaces is cut to what its budgets hold; then go
// kept rows, lowest class and oldest use first; then what SeatClaim takes from
// residents. Conversations long enough for it are spilled before they lose
// rows; blocks that wait for that are waited for. A scratch sequence takes
// nothing from anybody. Rows of an answer, which no gate was passed for, are
// `gated`: a block that needs memory which the machine must keep is not to be
// had.
[[nodiscard]] Supply HaveBlocks(EngineState& state, SeatClaim& claim,
                                Sequence& sequence, int rows, bool gated);

// Sees to it that one block is there to be taken, which is the caller's then,
// from what is kept alone.
[[nodiscard]] Supply HaveOneBlock(EngineState& state);

// Blocks that HaveBlocks could find at most without stores giving any up: free,
// cached, and those that only conversations hold which no request runs.
int ObtainableBlocks(const EngineState& state);
// How many of them a request needs whose first `rows` rows begin with `prompt`:
// all but those that running requests hold.
int BlocksToFind(const EngineState& state, const PrefixKey& root,
                 std::span<const KeyId> prompt, int rows);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_BLOCK_SUPPLY_H_
