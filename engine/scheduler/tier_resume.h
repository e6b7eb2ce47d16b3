// Resuming a prompt from the tiers of the cache service.
#ifndef HOLDFAST_ENGINE_SCHEDULER_TIER_RESUME_H_
#define HOLDFAST_ENGINE_SCHEDULER_TIER_RESUME_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "engine/cache/tier_plan.h"
#include "engine/cache/tiers.h"
#include "engine/resume/plan.h"
#include "engine/resume/sequence.h"
#include "engine/scheduler/block_supply.h"
#include "engine/scheduler/engine_state.h"
#include "shared/aligned_buffer.h"

namespace holdfast::engine {

struct TierResumption {
  // Not kNone: the sequence has the state: as a cold run would have it, or, on
  // a grid backend, as its own conversation kept it.
  CacheSource source = CacheSource::kNone;
  StoredState state = StoredState::kLine;  // where, when there is a source
  int restored = 0;                        // rows that were read
  SourceRows rows_of = {};  // those below, which were in the pool
  // Why the tiers did not serve, when that is more than "cold".
  MissReason miss = MissReason::kNone;
};

// Used once, on the engine thread. Restores go on beside it: Poll() until it
// says how it ended, or GiveUp().
class TierResume {
 public:
  // Makes the sequence's table long enough for so many rows.
  using FindBlocks = std::function<Supply(int rows)>;

  // `state` has tiers, `sequence` is empty. All arguments outlive this.
  TierResume(EngineState& state, const PromptView& prompt, bool touch,
             FindBlocks find_blocks, Sequence& sequence)
      : state_(state),
        prompt_(prompt),
        touch_(touch),
        find_blocks_(std::move(find_blocks)),
        sequence_(sequence) {}

  // Asks the tiers and starts with what is worth it, best first, where that
  // starts deeper than `in_place`. Never longer than the lookup's deadline.
  void Start(int in_place);
  // Nothing: a restore is under way, at most until its deadline. The sequence
  // is empty again when nothing served.
  std::optional<TierResumption> Poll();
  // Of the restore under way; 0: there is none.
  int position() const { return ended_ ? 0 : offer().candidate.position; }
  // Nobody needs it any more. The sequence is empty.
  void GiveUp();

 private:
  bool Serves(const TierCandidate& candidate) const;
  MissReason WhyNothing(const TierLookup& lookup, const TierPlan& plan) const;
  // Of the offer that is next. Unavailable blocks: kWait, kNone.
  Supply FindRoom();
  void StartRestore();
  absl::Status TakeOver();
  // Whole blocks below `limit` that the pool has; returns their rows.
  int AdoptWhatIsThere(int limit);
  // The offer under way has ended so.
  void Ended(const absl::Status& status, double seconds);
  const TierOffer& offer() const { return plan_.offers[tried_]; }

  EngineState& state_;
  const PromptView& prompt_;
  const bool touch_;
  const FindBlocks find_blocks_;
  Sequence& sequence_;
  int in_place_ = 0;
  TierPlan plan_;
  std::size_t tried_ = 0;  // of its offers
  AlignedBuffer image_;
  std::optional<int> have_;  // rows of the pool that this offer starts with
  int restored_ = 0;
  SourceRows rows_of_;
  TierResumption result_;
  bool ended_ = true;
  // Last: it writes into what is above.
  std::unique_ptr<TierRestore> restore_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_TIER_RESUME_H_
