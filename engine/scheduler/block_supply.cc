#include "engine/scheduler/block_supply.h"

#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

// False when there is nothing left to give back.
bool GiveBack(EngineState& state, const Sequence& heir) {
  // Stores wait for nobody, and nobody waits for stores.
  if (state.tiering != nullptr && state.tiering->leases.RevokeAll() > 0) {
    return true;
  }
  Seat* const seat = state.OldestResident();
  if (seat == nullptr) return false;
  state.RetireResident(*seat, heir.anchors);
  return true;
}

}  // namespace

bool HaveBlocks(EngineState& state, Sequence& sequence, int rows) {
  while (sequence.table.size() * kBlockTokens < rows) {
    if (sequence.table.Append()) continue;
    if (sequence.table.kind() == BlockTable::Kind::kScratch) return false;
    if (!GiveBack(state, sequence)) return false;
  }
  return true;
}

}  // namespace holdfast::engine
