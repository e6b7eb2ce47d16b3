#include "engine/scheduler/block_supply.h"

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/scheduler/session_spill.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

// False when there is nothing left to give back.
bool GiveBack(EngineState& state, SeatClaim& claim) {
  // Stores wait for nobody, and nobody waits for stores.
  if (state.tiering != nullptr && state.tiering->leases.RevokePool() > 0) {
    return true;
  }
  return claim.Displace() || state.retained.GiveBlock() ||
         claim.TakeFromResidents();
}

// Blocks that no running request refers to, but conversations do.
std::unordered_set<BlockId> HeldByNoneThatRuns(const EngineState& state) {
  std::vector<const Sequence*> idle = state.Residents();
  for (const Sequence* kept : state.retained.Sequences()) idle.push_back(kept);
  std::unordered_map<BlockId, int> references;
  for (const Sequence* sequence : idle) {
    for (int i = 0; i < sequence->table.size(); ++i) {
      ++references[sequence->table.block(i)];
    }
  }
  std::unordered_set<BlockId> held;
  for (const auto& [block, count] : references) {
    if (state.pool.references(block) == count) held.insert(block);
  }
  return held;
}

// Not all of them can be had: a cached block stays while a request holds the
// next one of its chain. One that began in the rows of another, which then went
// over to the index's blocks, may hold that and not this.
int Unused(const EngineState& state) {
  const BlockPool::Counts counts = state.pool.counts();
  return counts.free + counts.cached;
}

bool HasBlock(const EngineState& state) { return Unused(state) > 0; }

// It goes over too. False when that made no block free.
bool GoOver(EngineState& state, Sequence& sequence) {
  const int free = state.pool.counts().free;
  PublishBlocks(state.pool, state.rule, sequence);
  return state.pool.counts().free > free;
}

}  // namespace

Supply HaveBlocks(EngineState& state, SeatClaim& claim, Sequence& sequence,
                  int rows, bool gated) {
  const bool scratch = sequence.table.kind() == BlockTable::Kind::kScratch;
  while (sequence.table.size() * kBlockTokens < rows) {
    claim.SpillAhead();
    const bool memory = !gated || MemoryForBlock(state, /*give_back=*/!scratch);
    if (memory && sequence.table.Append()) continue;
    if (scratch) return Supply::kNone;
    const int unused = Unused(state);
    const bool waits = SpillsUnderWay(state);
    // One may just have ended.
    if (memory && Unused(state) > unused) continue;
    if (memory && unused > 0 && GoOver(state, sequence)) continue;
    if (waits) return Supply::kWait;
    if (!GiveBack(state, claim)) return Supply::kNone;
  }
  return Supply::kHave;
}

Supply HaveOneBlock(EngineState& state) {
  while (!HasBlock(state)) {
    const bool waits = SpillsUnderWay(state);
    if (HasBlock(state)) break;
    if (waits) return Supply::kWait;
    if (!state.retained.GiveBlock()) return Supply::kNone;
  }
  return Supply::kHave;
}

int ObtainableBlocks(const EngineState& state) {
  const BlockPool::Counts counts = state.pool.counts();
  return counts.free + counts.cached +
         static_cast<int>(HeldByNoneThatRuns(state).size());
}

int BlocksToFind(const EngineState& state, const PrefixKey& root,
                 std::span<const KeyId> prompt, int rows) {
  int blocks = (rows + kBlockTokens - 1) / kBlockTokens;
  const std::unordered_set<BlockId> idle = HeldByNoneThatRuns(state);
  std::vector<PrefixKey> keys;
  ExtendPrefixKeys(root, prompt, keys);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const BlockId block = state.pool.Find(
        keys[i], prompt.subspan(i * kBlockTokens, kBlockTokens));
    if (block == kNoBlock) break;
    if (state.pool.references(block) > 0 && !idle.contains(block)) {
      --blocks;
    }
  }
  return blocks;
}

}  // namespace holdfast::engine
