// Before each prefill and each block of an answer that grows: does the machine
// have the memory, and do the caches stay in their budget?
#ifndef HOLDFAST_ENGINE_SCHEDULER_MEMORY_GATE_H_
#define HOLDFAST_ENGINE_SCHEDULER_MEMORY_GATE_H_

#include <cstdint>
#include <functional>
#include <limits>

namespace holdfast::engine {

struct EngineState;

struct MemoryLimits {
  static constexpr std::uint64_t kNoBudget =
      std::numeric_limits<std::uint64_t>::max();

  // Memory that the machine must keep (MemAvailable).
  std::uint64_t keep_free_bytes = 0;
  // Of rows and anchors that no running request uses.
  std::uint64_t cache_budget_bytes = kNoBudget;
  // What the machine can give now.
  std::function<std::uint64_t()> available;
};

// Bytes of blocks and anchors that no running request uses.
std::uint64_t CacheBytes(const EngineState& state);

enum class MemoryGate {
  kPasses,
  kWaits,   // for a spill under way: to be asked again
  kClosed,  // the memory does not suffice; the caches are empty
};

// Gives caches back, the state store of the cache service first, then one block
// at a time, until they are within their budget and `blocks` more blocks can be
// had without the machine's free memory falling below what it must keep: blocks
// that were used before have their memory already, so each that a cache gives
// up counts. In this order: rows of no class, guests', parked, pinned, then
// residents, the one used longest ago first; conversations long enough for it
// are spilled before, which is waited for. Decides only where prefills start,
// never what they compute. On the engine thread.
[[nodiscard]] MemoryGate PassMemoryGate(EngineState& state, int blocks);

// Whether the machine has the memory for one block more of an answer; with
// `give_back`, once the state store was given back and rows of no class. On the
// engine thread.
[[nodiscard]] bool MemoryForBlock(EngineState& state, bool give_back);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_MEMORY_GATE_H_
