#include "engine/scheduler/memory_gate.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include "engine/scheduler/block_supply.h"
#include "engine/scheduler/engine_state.h"
#include "engine/scheduler/session_spill.h"

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

// The oldest anchor of a resident, the one kept longest ago first, but never
// its newest, nor one that a request uses. Its memory stays the engine's, for
// other anchors: that is of use to the budget alone.
bool DropAnchor(EngineState& state) {
  std::vector<Seat*> seats;
  for (Seat& seat : state.seats) {
    if (seat.resident && !seat.resident->anchors.empty()) {
      seats.push_back(&seat);
    }
  }
  std::ranges::sort(seats, {}, &Seat::last_use);
  for (Seat* const seat : seats) {
    AnchorList& anchors = seat->resident->anchors;
    const auto newest = std::prev(anchors.end());
    const auto at = std::find_if(
        anchors.begin(), newest,
        [](const AnchorRef& anchor) { return anchor.use_count() == 1; });
    if (at == newest) continue;
    anchors.erase(at);
    ++state.anchors_dropped.budget;
    return true;
  }
  return false;
}

bool GiveKept(EngineState& state) {
  return state.pool.EvictOne() || state.retained.GiveBlock();
}

// False when the caches are empty.
bool GiveBack(EngineState& state) {
  return GiveKept(state) || DisplaceOldestResident(state);
}

// Memory that `blocks` blocks would newly take from the machine.
std::uint64_t NewBytes(const EngineState& state, int blocks) {
  const BlockPool::Counts counts = state.pool.counts();
  const int has_memory = counts.free - counts.untouched;
  return static_cast<std::uint64_t>(std::max(blocks - has_memory, 0)) *
         state.pool.block_bytes();
}

// That the machine must give before `blocks` more can be had.
std::uint64_t MissingBytes(const EngineState& state, int blocks) {
  const MemoryLimits& limits = state.options.memory;
  const std::uint64_t bytes = NewBytes(state, blocks);
  if (bytes == 0 || !limits.available) return 0;
  const std::uint64_t wanted = limits.keep_free_bytes + bytes;
  return wanted - std::min(wanted, limits.available());
}

// False when it has none, or none left.
bool GiveStoreBack(EngineState& state, std::uint64_t bytes) {
  return state.tiering != nullptr &&
         state.tiering->FreeStore(bytes, std::chrono::steady_clock::now());
}

}  // namespace

std::uint64_t CacheBytes(const EngineState& state) {
  const int blocks = ObtainableBlocks(state) - state.pool.counts().free;
  return static_cast<std::uint64_t>(blocks) * state.pool.block_bytes() +
         static_cast<std::uint64_t>(state.anchor_slots.live()) *
             state.section_buffers.section_bytes();
}

MemoryGate PassMemoryGate(EngineState& state, int blocks) {
  const std::uint64_t budget = state.options.memory.cache_budget_bytes;
  while (
      budget != MemoryLimits::kNoBudget && CacheBytes(state) > budget &&
      (GiveKept(state) || DropAnchor(state) || DisplaceOldestResident(state))) {
  }
  while (const std::uint64_t missing = MissingBytes(state, blocks)) {
    if (GiveStoreBack(state, missing) || state.pool.EvictOne()) continue;
    if (SpillsUnderWay(state)) return MemoryGate::kWaits;
    if (!GiveBack(state)) return MemoryGate::kClosed;
  }
  return MemoryGate::kPasses;
}

bool MemoryForBlock(EngineState& state, bool give_back) {
  while (const std::uint64_t missing = MissingBytes(state, 1)) {
    if (!give_back) return false;
    if (!GiveStoreBack(state, missing) && !state.pool.EvictOne()) return false;
  }
  return true;
}

}  // namespace holdfast::engine
