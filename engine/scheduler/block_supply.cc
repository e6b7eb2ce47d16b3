#include "engine/scheduler/block_supply.h"

#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

// False when there is nothing left to give back.
bool GiveBack(EngineState& state, SeatClaim& claim) {
  // Stores wait for nobody, and nobody waits for stores.
  if (state.tiering != nullptr && state.tiering->leases.RevokeAll() > 0) {
    return true;
  }
  return claim.Displace() || state.retained.GiveBlock() ||
         claim.TakeFromResidents();
}

}  // namespace

bool HaveBlocks(EngineState& state, SeatClaim& claim, Sequence& sequence,
                int rows) {
  while (sequence.table.size() * kBlockTokens < rows) {
    claim.SpillAhead();
    if (sequence.table.Append()) continue;
    if (sequence.table.kind() == BlockTable::Kind::kScratch) return false;
    if (!GiveBack(state, claim)) return false;
  }
  return true;
}

}  // namespace holdfast::engine
