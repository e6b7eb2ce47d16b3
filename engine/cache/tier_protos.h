// Between the engine's words for the tiers and the wire's.
#ifndef HOLDFAST_ENGINE_CACHE_TIER_PROTOS_H_
#define HOLDFAST_ENGINE_CACHE_TIER_PROTOS_H_

#include <cstdint>
#include <optional>

#include "engine/cache/tiers.h"
#include "holdfast/v1/cache.pb.h"

namespace holdfast::engine {

void ToProto(const PromptView& prompt, v1::PromptKeys* proto);
void ToProto(const TierCandidate& candidate, v1::TierCandidate* proto);
v1::StoreRequest ToProto(const StoreJob& job, std::uint64_t epoch);

// Nothing for what no cache service of this version says.
std::optional<TierCandidate> FromProto(const v1::TierCandidate& proto);
std::optional<KeptResident> FromProto(const v1::Resident& proto);
void ToProto(const PlannerRates& rates, v1::MeasuredCosts* proto);
// What is no rate counts as not measured.
PlannerRates FromProto(const v1::MeasuredCosts& proto);
StoreOutcome FromProto(v1::StoreResponse::Outcome outcome);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_TIER_PROTOS_H_
