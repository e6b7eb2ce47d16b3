// Prometheus metrics of what the engine did with the tiers.
#ifndef HOLDFAST_ENGINE_METRICS_TIER_METRICS_H_
#define HOLDFAST_ENGINE_METRICS_TIER_METRICS_H_

#include <vector>

#include "engine/cache/tiering.h"
#include "prometheus/metric_family.h"

namespace holdfast::engine {

// Every tier and reason has its series from the start, at zero.
void AddTierMetrics(const TierCounters& counters, int leases,
                    std::uint64_t leases_revoked,
                    std::vector<prometheus::MetricFamily>& families);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_METRICS_TIER_METRICS_H_
