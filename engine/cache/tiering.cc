#include "engine/cache/tiering.h"

#include <utility>

namespace holdfast::engine {

const char* RestoreFailureName(RestoreFailure failure) {
  switch (failure) {
    case RestoreFailure::kGone:
      return "gone";
    case RestoreFailure::kCorrupt:
      return "corrupt";
    case RestoreFailure::kMismatch:
      return "mismatch";
    case RestoreFailure::kDeadline:
      return "deadline";
    case RestoreFailure::kCancelled:
      return "cancelled";
    case RestoreFailure::kBlocks:
      return "blocks";
    case RestoreFailure::kError:
      break;
  }
  return "error";
}

void TierCounters::CountPlan(const TierPlan& plan) {
  if (plan.offers.empty() && !plan.too_costly.empty()) ++chose_in_place;
  for (std::size_t i = 0; i < plan.offers.size(); ++i) {
    OfTier& tier = of(plan.offers[i].candidate.tier);
    ++(i == 0 ? tier.chosen : tier.lost);
  }
  for (const TierOffer& offer : plan.too_costly)
    ++of(offer.candidate.tier).too_costly;
}

void TierCounters::NoteRates(const PlannerRates& rates) {
  prefill_tokens_per_s = rates.prefill_tokens;
  for (int i = 0; i < kTiers; ++i)
    tiers[i].read_bytes_per_s = rates.read_bytes[i];
}

void Tiering::Store(StoreJob job, std::function<void(StoreOutcome)> then) {
  const LeaseRef lease = job.lease;
  const Tier tier = job.tier;
  ++counters->stores_under_way;
  tiers.Store(std::move(job),
              [lease, tier, returns = leases.returns(), counters = counters,
               ended = ended, then = std::move(then)](StoreOutcome outcome) {
                returns->Add(lease);
                ++counters->of(tier).stores[static_cast<std::size_t>(outcome)];
                if (then) then(outcome);
                --counters->stores_under_way;
                ended->Ring();
              });
}

void Tiering::AwaitStores(std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const std::uint64_t seen = ended->rings();
    const auto now = std::chrono::steady_clock::now();
    leases.Collect(now);
    waiting.Retry(*this, now);
    if (counters->stores_under_way == 0 && waiting.empty()) return;
    const auto left = deadline - now;
    if (left <= left.zero()) return;
    ended->Wait(seen, std::chrono::ceil<std::chrono::milliseconds>(left));
  }
}

bool Tiering::FreeStore(std::uint64_t bytes,
                        std::chrono::steady_clock::time_point now) {
  constexpr std::chrono::seconds kPause{1};
  if (now < ask_store_after) return false;
  const std::uint64_t freed = tiers.FreeStore(bytes);
  counters->store_freed_bytes += freed;
  if (freed < bytes) ask_store_after = now + kPause;
  return freed > 0;
}

void TierCounters::MeasuredSpill(std::uint64_t bytes, double seconds) {
  if (seconds <= 0) return;
  const double rate = static_cast<double>(bytes) / seconds;
  spill_bytes_per_s = 0.75 * spill_bytes_per_s + 0.25 * rate;
}

}  // namespace holdfast::engine
