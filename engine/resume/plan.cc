#include "engine/resume/plan.h"

#include <algorithm>

#include "shared/cache_layout.h"
#include "shared/check.h"

namespace holdfast::engine {
namespace {

int CommonPrefix(std::span<const KeyId> a, std::span<const KeyId> b) {
  const auto ends = std::ranges::mismatch(a, b);
  return static_cast<int>(ends.in1 - a.begin());
}

// The chain of indexed blocks from the root. Sets `evicted` when the block at
// which it ends was there once.
std::vector<BlockId> FindChain(const BlockPool& pool, const PrefixKey& root,
                               std::span<const KeyId> prompt, bool& evicted) {
  std::vector<BlockId> chain;
  PrefixKey key = root;
  for (std::size_t at = 0; at + kBlockTokens <= prompt.size();
       at += kBlockTokens) {
    const auto ids = prompt.subspan(at, kBlockTokens);
    key = ChainPrefixKey(key, ids);
    const BlockId block = pool.Find(key, ids);
    if (block == kNoBlock) {
      evicted = pool.EvictedLately(key);
      break;
    }
    chain.push_back(block);
  }
  return chain;
}

}  // namespace

const char* CacheSourceName(CacheSource source) {
  return source == CacheSource::kResident ? "resident" : "none";
}

const char* MissReasonName(MissReason reason) {
  switch (reason) {
    case MissReason::kCold:
      return "cold";
    case MissReason::kEvicted:
      return "evicted";
    case MissReason::kBypass:
      return "bypass";
    case MissReason::kNone:
      break;
  }
  return "";
}

ResumePlan PlanResume(const BlockPool& pool, const Sequence* resident,
                      const PrefixKey& root, std::span<const KeyId> prompt) {
  const int limit = static_cast<int>(prompt.size()) - 1;
  bool evicted = false;
  ResumePlan plan;
  plan.blocks = FindChain(pool, root, prompt, evicted);
  plan.position =
      std::min(limit, static_cast<int>(plan.blocks.size()) * kBlockTokens);
  if (resident != nullptr && resident->root == root) {
    const int shared = std::min(limit, CommonPrefix(prompt, resident->ids));
    if (shared > plan.position) {
      plan.position = shared;
      plan.blocks.clear();
      for (int i = 0; i * kBlockTokens < shared; ++i) {
        plan.blocks.push_back(resident->table.block(i));
      }
    }
  }
  plan.blocks.resize((plan.position + kBlockTokens - 1) / kBlockTokens);
  if (plan.position > 0) {
    plan.source = CacheSource::kResident;
  } else {
    plan.miss = evicted ? MissReason::kEvicted : MissReason::kCold;
  }
  return plan;
}

void StartSequence(const ResumePlan& plan, std::span<const KeyId> prompt,
                   const kernels::KvShape& shape, kernels::Backend& backend,
                   BlockPool& pool, Sequence& sequence) {
  HF_CHECK(sequence.rows() == 0 && sequence.table.size() == 0);
  const int whole = plan.position / kBlockTokens;
  const int rest = plan.position % kBlockTokens;
  for (int i = 0; i < whole; ++i) sequence.table.Adopt(plan.blocks[i]);
  int position = whole * kBlockTokens;
  if (rest > 0) {
    // Held while Append may evict.
    BlockTable source(&pool, sequence.table.kind());
    source.Adopt(plan.blocks[whole]);
    if (sequence.table.Append()) {
      backend.CopyBlockRows(shape, source.pointer(0), rest,
                            sequence.table.pointer(whole));
      position += rest;
    }
  }
  sequence.ids.assign(prompt.begin(), prompt.begin() + position);
}

}  // namespace holdfast::engine
