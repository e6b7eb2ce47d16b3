#include "engine/cache/tiers.h"

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

}  // namespace holdfast::engine
