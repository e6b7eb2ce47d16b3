#include "engine/cache/tiers.h"

#include <utility>

namespace holdfast::engine {

const char* TierName(Tier tier) {
  switch (tier) {
    case Tier::kStore:
      return "store";
    case Tier::kDisk:
      return "disk";
    case Tier::kSpill:
      break;
  }
  return "spill";
}

const char* StoreOutcomeName(StoreOutcome outcome) {
  switch (outcome) {
    case StoreOutcome::kStored:
      return "stored";
    case StoreOutcome::kWasThere:
      return "was_there";
    case StoreOutcome::kRefused:
      return "refused";
    case StoreOutcome::kFailed:
      return "failed";
    case StoreOutcome::kDropped:
      break;
  }
  return "dropped";
}

absl::Status RestoreAndWait(CacheTiers& tiers, RestoreJob job) {
  // Rung at the end; asked so often in case it is not.
  constexpr std::chrono::milliseconds kAsk{100};
  const auto bell = std::make_shared<Doorbell>();
  job.bell = bell;
  const auto restore = tiers.StartRestore(std::move(job));
  for (;;) {
    const std::uint64_t seen = bell->rings();
    if (auto end = restore->Poll()) return std::move(end->status);
    bell->Wait(seen, kAsk);
  }
}

}  // namespace holdfast::engine
