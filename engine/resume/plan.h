// Where a prompt's prefill starts.
#ifndef HOLDFAST_ENGINE_RESUME_PLAN_H_
#define HOLDFAST_ENGINE_RESUME_PLAN_H_

#include <span>
#include <vector>

#include "engine/pool/block_pool.h"
#include "engine/resume/sequence.h"
#include "kernels/backend.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {

enum class CacheSource { kNone, kResident };
enum class MissReason { kNone, kCold, kEvicted, kBypass };
const char* CacheSourceName(CacheSource source);
// Empty for kNone.
const char* MissReasonName(MissReason reason);

struct ResumePlan {
  int position = 0;  // rows below it need no forward
  CacheSource source = CacheSource::kNone;
  MissReason miss = MissReason::kNone;  // when position is 0
  // They hold those rows, the last one perhaps more. Not pinned: use the plan
  // before the pool changes.
  std::vector<BlockId> blocks;
};

// The longest cached prefix of `prompt`, in the resident (may be null) or in
// the index, for models whose rows can be resumed at any token. The last token
// of the prompt is never taken from the cache: its forward gives the first
// logits. Changes nothing.
ResumePlan PlanResume(const BlockPool& pool, const Sequence* resident,
                      const PrefixKey& root, std::span<const KeyId> prompt);

// Gives `sequence`, which is empty, the rows of the plan: whole blocks by
// reference, rows of a block that goes on differently by copy. Where no block
// is left for the copy, the sequence starts at the block's first row instead.
void StartSequence(const ResumePlan& plan, std::span<const KeyId> prompt,
                   const kernels::KvShape& shape, kernels::Backend& backend,
                   BlockPool& pool, Sequence& sequence);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RESUME_PLAN_H_
