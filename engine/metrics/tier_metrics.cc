#include "engine/metrics/tier_metrics.h"

#include <string>
#include <utility>

namespace holdfast::engine {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

MetricFamily CounterFamily(std::string name, std::string help) {
  return {std::move(name), std::move(help), MetricType::Counter, {}};
}

void Add(MetricFamily& family, Labels labels, double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.counter.value = value;
  family.metric.push_back(std::move(metric));
}

}  // namespace

void AddTierMetrics(const TierCounters& counters, int leases,
                    std::uint64_t leases_revoked,
                    std::vector<MetricFamily>& families) {
  ClientMetric live;
  live.gauge.value = leases;
  families.push_back({"holdfast_leases",
                      "Stores whose blocks are lent to the cache service",
                      MetricType::Gauge,
                      {live}});
  MetricFamily revoked =
      CounterFamily("holdfast_leases_revoked_total",
                    "Leases taken back before their store had ended");
  Add(revoked, {}, static_cast<double>(leases_revoked));
  families.push_back(std::move(revoked));
  MetricFamily lookups = CounterFamily("holdfast_tier_lookups_total",
                                       "Prompts asked for in the tiers");
  const double late = static_cast<double>(counters.late_lookups.load());
  Add(lookups, {{"outcome", "late"}}, late);
  Add(lookups, {{"outcome", "answered"}},
      static_cast<double>(counters.lookups.load()) - late);
  MetricFamily lost = CounterFamily(
      "holdfast_spills_lost_total",
      "Long conversations that lost rows before they were spilled");
  Add(lost, {}, static_cast<double>(counters.lost_spills.load()));
  families.push_back(std::move(lost));
  ClientMetric telling;
  telling.gauge.value = counters.records_under_way.load();
  families.push_back({"holdfast_records_under_way",
                      "Session records on their way to the cache service",
                      MetricType::Gauge,
                      {telling}});
  MetricFamily untold =
      CounterFamily("holdfast_records_lost_total",
                    "Session records that the cache service did not take");
  Add(untold, {}, static_cast<double>(counters.records_lost.load()));
  families.push_back(std::move(untold));
  MetricFamily store = CounterFamily(
      "holdfast_store_freed_bytes_total",
      "Memory of the state store given back for requests of this engine");
  Add(store, {}, static_cast<double>(counters.store_freed_bytes.load()));
  families.push_back(std::move(store));
  MetricFamily restores = CounterFamily("holdfast_tier_restores_total",
                                        "Restores tried, by how they ended");
  MetricFamily tokens =
      CounterFamily("holdfast_tier_restored_tokens_total", "Rows restored");
  MetricFamily bytes =
      CounterFamily("holdfast_tier_restored_bytes_total", "Bytes restored");
  MetricFamily seconds = CounterFamily("holdfast_tier_restore_seconds_total",
                                       "Time of restores that served");
  MetricFamily stores = CounterFamily(
      "holdfast_tier_stores_total", "Stores, by how they ended for the engine");
  for (int i = 0; i < kTiers; ++i) {
    const std::string tier = TierName(static_cast<Tier>(i));
    const TierCounters::OfTier& of = counters.tiers[i];
    Add(restores, {{"tier", tier}, {"outcome", "ok"}},
        static_cast<double>(of.restores.load()));
    for (int f = 0; f < kRestoreFailures; ++f) {
      Add(restores,
          {{"tier", tier},
           {"outcome", RestoreFailureName(static_cast<RestoreFailure>(f))}},
          static_cast<double>(of.failed[f].load()));
    }
    Add(tokens, {{"tier", tier}}, static_cast<double>(of.tokens.load()));
    Add(bytes, {{"tier", tier}}, static_cast<double>(of.bytes.load()));
    Add(seconds, {{"tier", tier}}, 1e-6 * of.microseconds.load());
    for (int o = 0; o < kStoreOutcomes; ++o) {
      Add(stores,
          {{"tier", tier},
           {"outcome", StoreOutcomeName(static_cast<StoreOutcome>(o))}},
          static_cast<double>(of.stores[o].load()));
    }
  }
  for (MetricFamily* family :
       {&lookups, &restores, &tokens, &bytes, &seconds, &stores}) {
    families.push_back(std::move(*family));
  }
}

}  // namespace holdfast::engine
