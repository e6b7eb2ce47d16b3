#include "cachesvc/service/metrics_text.h"

#include <utility>
#include <vector>

#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"

namespace holdfast::cachesvc {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily Counter(std::string name, std::string help, std::uint64_t value) {
  ClientMetric metric;
  metric.counter.value = static_cast<double>(value);
  return {std::move(name), std::move(help), MetricType::Counter, {metric}};
}

MetricFamily Gauge(std::string name, std::string help, std::uint64_t value) {
  ClientMetric metric;
  metric.gauge.value = static_cast<double>(value);
  return {std::move(name), std::move(help), MetricType::Gauge, {metric}};
}

MetricFamily Refusals(const attach::AttachServerState& state) {
  MetricFamily family = {"holdfast_cachesvc_attach_refusals_total",
                         "Attach attempts refused, by reason",
                         MetricType::Counter,
                         {}};
  for (std::uint32_t i = 1; i <= attach::kLastRefusalReason; ++i) {
    ClientMetric metric;
    metric.label = {{"reason", std::string(attach::RefusalName(
                                   static_cast<attach::RefusalReason>(i)))}};
    metric.counter.value = static_cast<double>(state.refusals[i]);
    family.metric.push_back(std::move(metric));
  }
  return family;
}

std::string TierLabel(v1::Tier tier) {
  switch (tier) {
    case v1::TIER_STORE:
      return "store";
    case v1::TIER_DISK:
      return "disk";
    default:
      return "spill";
  }
}

void Add(MetricFamily& family, std::vector<ClientMetric::Label> labels,
         double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  if (family.type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(std::move(metric));
}

// One family with a series a tier.
MetricFamily OfTiers(const v1::CacheStats& stats, std::string name,
                     std::string help, MetricType type,
                     double (*value)(const v1::TierStats&)) {
  MetricFamily family = {std::move(name), std::move(help), type, {}};
  for (const v1::TierStats& tier : stats.tiers()) {
    Add(family, {{"tier", TierLabel(tier.tier())}}, value(tier));
  }
  return family;
}

using Reasons = const google::protobuf::RepeatedPtrField<
    v1::NamedCount>& (*)(const v1::TierStats&);

MetricFamily ByReason(const v1::CacheStats& stats, std::string name,
                      std::string help, Reasons reasons) {
  MetricFamily family = {
      std::move(name), std::move(help), MetricType::Counter, {}};
  for (const v1::TierStats& tier : stats.tiers()) {
    for (const v1::NamedCount& reason : reasons(tier)) {
      Add(family, {{"tier", TierLabel(tier.tier())}, {"reason", reason.name()}},
          static_cast<double>(reason.count()));
    }
  }
  return family;
}

void AddTiers(const v1::CacheStats& stats,
              std::vector<MetricFamily>& families) {
  using Tier = v1::TierStats;
  const auto add = [&](const char* name, const char* help, MetricType type,
                       double (*value)(const Tier&)) {
    families.push_back(OfTiers(stats, std::string("holdfast_cachesvc_") + name,
                               help, type, value));
  };
  add("tier_available", "1 while a tier is offered", MetricType::Gauge,
      [](const Tier& t) -> double { return t.available(); });
  add("tier_writing", "0 while a tier does not write", MetricType::Gauge,
      [](const Tier& t) -> double {
        return t.available() && t.not_writing().empty();
      });
  add("tier_entries", "Anchors, conversations or snapshots held",
      MetricType::Gauge, [](const Tier& t) -> double { return t.entries(); });
  add("tier_bytes", "Bytes charged to a tier", MetricType::Gauge,
      [](const Tier& t) -> double { return t.bytes(); });
  add("tier_budget_bytes", "Most bytes of a tier", MetricType::Gauge,
      [](const Tier& t) -> double { return t.budget_bytes(); });
  add("lookups_total", "Prompts asked for", MetricType::Counter,
      [](const Tier& t) -> double { return t.lookups(); });
  add("hits_total", "Restores handed over whole", MetricType::Counter,
      [](const Tier& t) -> double { return t.hits(); });
  add("hit_tokens_total", "Rows handed over", MetricType::Counter,
      [](const Tier& t) -> double { return t.hit_tokens(); });
  add("read_bytes_total", "Bytes handed over", MetricType::Counter,
      [](const Tier& t) -> double { return t.read_bytes(); });
  add("read_milliseconds_total", "Time of restores that were handed over whole",
      MetricType::Counter, [](const Tier& t) { return t.read_ms(); });
  add("stores_total", "Entries made durable", MetricType::Counter,
      [](const Tier& t) -> double { return t.stores(); });
  add("written_bytes_total", "Bytes made durable", MetricType::Counter,
      [](const Tier& t) -> double { return t.written_bytes(); });
  add("write_milliseconds_total", "Time of stores", MetricType::Counter,
      [](const Tier& t) { return t.write_ms(); });
  add("corrupt_files_total", "Files that failed a check", MetricType::Counter,
      [](const Tier& t) -> double { return t.corrupt_files(); });
  families.push_back(
      ByReason(stats, "holdfast_cachesvc_refused_total",
               "Stores and restores refused or given up, by reason",
               [](const Tier& t) -> decltype(auto) { return t.refused(); }));
  families.push_back(ByReason(
      stats, "holdfast_cachesvc_removed_total", "Entries that went, by reason",
      [](const Tier& t) -> decltype(auto) { return t.removed(); }));
}

}  // namespace

std::string MetricsText(const attach::AttachServerState& state,
                        std::uint64_t staging_bytes,
                        const v1::CacheStats& stats) {
  std::vector<MetricFamily> families = {
      Gauge("holdfast_cachesvc_engine_attached",
            "1 while an engine is attached", state.peer ? 1 : 0),
      Gauge("holdfast_cachesvc_draining", "1 from SIGTERM on",
            state.draining ? 1 : 0),
      Counter("holdfast_cachesvc_attaches_total", "Engines attached",
              state.attaches),
      Counter("holdfast_cachesvc_detaches_total",
              "Attached engines that went away", state.detaches),
      Refusals(state),
      Gauge("holdfast_cachesvc_pool_bytes",
            "Size of the attached engine's pool; 0 without one",
            state.peer ? state.peer->pool_bytes : 0),
      Gauge("holdfast_cachesvc_staging_bytes",
            "Size of the staging memory for restores", staging_bytes),
      Gauge("holdfast_cachesvc_staging_slots_used",
            "Slots that a restore or the engine holds", stats.slots_lent()),
      Counter("holdfast_cachesvc_stale_slots_total",
              "Slots returned under an old generation", stats.stale_slots()),
      Gauge("holdfast_cachesvc_index_bytes",
            "Index and ledger, in the disk tier's bytes", stats.index_bytes()),
      Gauge("holdfast_cachesvc_waiting_bytes",
            "Files that wait to be deleted or looked at, in the disk tier's "
            "bytes",
            stats.waiting_bytes()),
      Gauge("holdfast_cachesvc_disk_held_bytes",
            "Deleted files that restores read, in the disk tier's bytes",
            stats.disk_held_bytes()),
      Gauge("holdfast_cachesvc_store_held_bytes",
            "Snapshots that went and are read, in the store's bytes",
            stats.store_held_bytes())};
  AddTiers(stats, families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace holdfast::cachesvc
