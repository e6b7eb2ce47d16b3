#include "engine/cache/tier_plan.h"

#include <algorithm>
#include <tuple>

#include "fmt/format.h"

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
    (read < saved ? plan.offers : plan.too_costly)
        .push_back(
            {candidate, read,
             read + costs.PrefillSeconds(candidate.position, prompt_tokens)});
  }
  std::ranges::stable_sort(plan.offers, {}, [](const TierOffer& offer) {
    return std::tuple(offer.total_s, offer.candidate.tier,
                      -offer.candidate.position);
  });
  return plan;
}

std::string DescribePlan(const TierPlan& plan, int in_place) {
  constexpr std::size_t kMost = 16;  // a line stays a line
  std::string text;
  const auto add = [&](const TierOffer& offer, const char* outcome) {
    text +=
        fmt::format("{}{}@{} {} bytes={} read_ms={:.1f} total_ms={:.1f}",
                    text.empty() ? "" : ", ", TierName(offer.candidate.tier),
                    offer.candidate.position, outcome, offer.candidate.bytes,
                    1000 * offer.read_s, 1000 * offer.total_s);
  };
  std::size_t told = 0;
  for (const TierOffer& offer : plan.offers) {
    if (told == kMost) break;
    add(offer, told++ == 0 ? "chosen" : "later");
  }
  for (const TierOffer& offer : plan.too_costly) {
    if (told++ >= kMost) break;
    add(offer, "too_costly");
  }
  const std::size_t rest =
      plan.offers.size() + plan.too_costly.size() - std::min(told, kMost);
  if (rest > 0) text += fmt::format(", {} more", rest);
  return fmt::format("in_place@{}; {}", in_place, text);
}

}  // namespace holdfast::engine
