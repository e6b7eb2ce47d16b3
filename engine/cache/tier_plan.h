// Which of the tiers' offers a prompt is resumed from.
#ifndef HOLDFAST_ENGINE_CACHE_TIER_PLAN_H_
#define HOLDFAST_ENGINE_CACHE_TIER_PLAN_H_

#include <string>
#include <vector>

#include "engine/cache/planner_costs.h"
#include "engine/cache/tiers.h"

namespace holdfast::engine {

struct TierOffer {
  TierCandidate candidate;
  double read_s = 0;
  double total_s = 0;  // read, then prefill of the rest
};

struct TierPlan {
  // Worth a try, best first: less time in all than starting at `in_place`, and
  // a read that costs less than the prefill it saves.
  std::vector<TierOffer> offers;
  // They start deeper than `in_place` too, but reading them takes longer than
  // computing.
  std::vector<TierOffer> too_costly;
};

// What there was to choose from, the choice first: for the log.
std::string DescribePlan(const TierPlan& plan, int in_place);

// `in_place`: where the pool alone lets the prompt start. Of equal times the
// shallower tier is first, then the deeper position.
TierPlan PlanTiers(const PlannerCosts& costs,
                   const std::vector<TierCandidate>& candidates, int in_place,
                   int prompt_tokens);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_TIER_PLAN_H_
