#include "engine/cache/tier_plan.h"

#include <algorithm>
#include <tuple>

namespace holdfast::engine {

TierPlan PlanTiers(const PlannerCosts& costs,
                   const std::vector<TierCandidate>& candidates, int in_place,
                   int prompt_tokens) {
  TierPlan plan;
  for (const TierCandidate& candidate : candidates) {
    if (candidate.position <= in_place || candidate.position > prompt_tokens) {
      continue;
    }
    const double read = costs.ReadSeconds(candidate.tier, candidate.bytes);
    const double saved = costs.PrefillSeconds(in_place, candidate.position);
    if (read >= saved) {
      plan.too_costly = true;
      continue;
    }
    plan.offers.push_back(
        {candidate, read,
         read + costs.PrefillSeconds(candidate.position, prompt_tokens)});
  }
  std::ranges::stable_sort(plan.offers, {}, [](const TierOffer& offer) {
    return std::tuple(offer.total_s, offer.candidate.tier,
                      -offer.candidate.position);
  });
  if (!plan.offers.empty()) plan.too_costly = false;
  return plan;
}

}  // namespace holdfast::engine
