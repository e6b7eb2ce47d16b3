// Resuming a prompt from the tiers of the cache service.
#ifndef HOLDFAST_ENGINE_SCHEDULER_TIER_RESUME_H_
#define HOLDFAST_ENGINE_SCHEDULER_TIER_RESUME_H_

#include <functional>

#include "engine/cache/tier_plan.h"
#include "engine/cache/tiers.h"
#include "engine/resume/plan.h"
#include "engine/resume/sequence.h"
#include "engine/scheduler/engine_state.h"

namespace holdfast::engine {

struct TierResumption {
  // Not kNone: the sequence has the state: as a cold run would have it, or, on
  // a grid backend, as its own conversation kept it.
  CacheSource source = CacheSource::kNone;
  int restored = 0;         // rows that were read
  SourceRows rows_of = {};  // those below, which were in the pool
  // Why the tiers did not serve, when that is more than "cold".
  MissReason miss = MissReason::kNone;
};

// Used once, on the engine thread.
class TierResume {
 public:
  struct Hooks {
    std::function<bool()> stop;  // was the request cancelled?
    // Makes the sequence's table long enough for so many rows.
    std::function<bool(int rows)> have_blocks;
  };

  // `state` has tiers. All arguments outlive this.
  TierResume(EngineState& state, const PromptView& prompt, bool touch,
             Hooks hooks)
      : state_(state),
        prompt_(prompt),
        touch_(touch),
        hooks_(std::move(hooks)) {}

  // Tries what is worth it, best first, when it starts deeper than `in_place`.
  // `sequence` is empty, and is again when nothing served. Never longer than
  // the lookup's and the restores' deadlines.
  TierResumption Run(int in_place, Sequence& sequence);

 private:
  bool Serves(const TierCandidate& candidate) const;
  MissReason WhyNothing(const TierLookup& lookup, const TierPlan& plan) const;
  absl::Status Restore(const TierOffer& offer, int in_place,
                       Sequence& sequence);
  // Whole blocks below `limit` that the pool has; returns their rows.
  int AdoptWhatIsThere(int limit, Sequence& sequence);

  EngineState& state_;
  const PromptView& prompt_;
  const bool touch_;
  const Hooks hooks_;
  int restored_ = 0;
  SourceRows rows_of_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_TIER_RESUME_H_
