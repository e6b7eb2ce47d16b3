#include "engine/scheduler/memory_gate.h"

#include <algorithm>
#include <utility>

#include "engine/scheduler/block_supply.h"
#include "engine/scheduler/engine_state.h"

namespace holdfast::engine {
namespace {

bool DisplaceOldestResident(EngineState& state) {
  Seat* const seat = state.OldestResident(nullptr);
  if (seat == nullptr) return false;
  Sequence leaving = *std::exchange(seat->resident, std::nullopt);
  AnchorList others;
  for (const Sequence* resident : state.Residents()) {
    others.insert(others.end(), resident->anchors.begin(),
                  resident->anchors.end());
  }
  for (const Sequence* running : state.running) {
    others.insert(others.end(), running->anchors.begin(),
                  running->anchors.end());
  }
  state.retained.Displace(std::move(leaving), {}, others);
  return true;
}

// False when the caches are empty.
bool GiveBack(EngineState& state) {
  return state.pool.EvictOne() || state.retained.GiveBlock() ||
         DisplaceOldestResident(state);
}

// Memory that `blocks` blocks would newly take from the machine.
std::uint64_t NewBytes(const EngineState& state, int blocks) {
  const BlockPool::Counts counts = state.pool.counts();
  const int has_memory = counts.free - counts.untouched;
  return static_cast<std::uint64_t>(std::max(blocks - has_memory, 0)) *
         state.pool.block_bytes();
}

bool MemorySuffices(const EngineState& state, int blocks) {
  const MemoryLimits& limits = state.options.memory;
  const std::uint64_t bytes = NewBytes(state, blocks);
  return bytes == 0 || !limits.available ||
         limits.available() >= limits.keep_free_bytes + bytes;
}

}  // namespace

std::uint64_t CacheBytes(const EngineState& state) {
  const int blocks = ObtainableBlocks(state) - state.pool.counts().free;
  return static_cast<std::uint64_t>(blocks) * state.pool.block_bytes() +
         static_cast<std::uint64_t>(state.anchor_slots.live()) *
             state.section_buffers.section_bytes();
}

bool PassMemoryGate(EngineState& state, int blocks) {
  const std::uint64_t budget = state.options.memory.cache_budget_bytes;
  while (budget != MemoryLimits::kNoBudget && CacheBytes(state) > budget &&
         GiveBack(state)) {
  }
  while (!MemorySuffices(state, blocks)) {
    if (!GiveBack(state)) return false;
  }
  return true;
}

}  // namespace holdfast::engine
