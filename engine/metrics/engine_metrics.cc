#include "engine/metrics/engine_metrics.h"

#include <cstddef>
#include <limits>
#include <vector>

#include "engine/metrics/stats_line.h"
#include "engine/metrics/tier_metrics.h"
#include "prometheus/text_serializer.h"

namespace holdfast::engine {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Histogram;
using prometheus::Registry;

// From a token of a tiny model to a prefill of minutes.
Histogram& Seconds(Registry& registry, const char* name, const char* help) {
  static const Histogram::BucketBoundaries bounds = {
      0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
      2.5,   5,     10,   25,    50,   100, 250,  500, 1000};
  return BuildHistogram().Name(name).Help(help).Register(registry).Add({},
                                                                       bounds);
}

Family<Counter>& Counters(Registry& registry, const char* name,
                          const char* help) {
  return BuildCounter().Name(name).Help(help).Register(registry);
}

// Brings a counter to what was counted elsewhere.
void Raise(Counter& counter, std::uint64_t total) {
  const double missing = static_cast<double>(total) - counter.Value();
  if (missing > 0) counter.Increment(missing);
}

prometheus::MetricFamily AgesFamily(const BlockPool::EvictionAges& ages) {
  prometheus::ClientMetric metric;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < ages.blocks.size(); ++i) {
    count += ages.blocks[i];
    metric.histogram.bucket.push_back(
        {count, i < BlockPool::kAgeBounds.size()
                    ? BlockPool::kAgeBounds[i]
                    : std::numeric_limits<double>::infinity()});
  }
  metric.histogram.sample_count = count;
  metric.histogram.sample_sum = ages.seconds;
  return {"holdfast_pool_eviction_age_seconds",
          "Time between a cached block's last use and its eviction",
          prometheus::MetricType::Histogram,
          {metric}};
}

}  // namespace

const char* RefusalName(Refusal::Reason reason) {
  switch (reason) {
    case Refusal::Reason::kQueueFull:
      return "queue_full";
    case Refusal::Reason::kDraining:
      return "draining";
    case Refusal::Reason::kContextOverflow:
      return "context_overflow";
    case Refusal::Reason::kOutOfBlocks:
      return "out_of_blocks";
    case Refusal::Reason::kDebugOnly:
      return "debug_only";
    case Refusal::Reason::kModelChanged:
      return "model_changed";
    case Refusal::Reason::kInvalid:
      break;
  }
  return "invalid";
}

EngineMetrics::EngineMetrics()
    : prompt_tokens_(Counters(
          registry_, "holdfast_prompt_tokens_total",
          "Prompt tokens, by where their rows came from (source=computed: "
          "forwarded; else the cache)")),
      requests_(Counters(registry_, "holdfast_requests_total",
                         "Requests that ran, by finish reason")),
      refused_(Counters(registry_, "holdfast_requests_refused_total",
                        "Requests that were not run, by reason")),
      misses_(Counters(registry_, "holdfast_prefix_cache_misses_total",
                       "Requests that resumed nowhere, by reason")),
      blocks_(BuildGauge()
                  .Name("holdfast_pool_blocks")
                  .Help("Blocks of the pool, by state")
                  .Register(registry_)),
      resumes_(Counters(registry_, "holdfast_resumes_total",
                        "Requests that resumed, by what they resumed at "
                        "(anchor=rows: at a token without an anchor)")),
      anchors_taken_(Counters(registry_, "holdfast_anchors_taken_total",
                              "Anchors copied in a prefill, by kind")),
      anchors_dropped_(Counters(
          registry_, "holdfast_anchors_dropped_total",
          "Anchors given up (reason=budget: for another one; rows: the rows "
          "below went)")),
      anchors_(BuildGauge()
                   .Name("holdfast_anchors")
                   .Help("Anchors held, end anchors not counted")
                   .Register(registry_)
                   .Add({})),
      generation_tokens_(Counters(registry_, "holdfast_generation_tokens_total",
                                  "Tokens generated")
                             .Add({})),
      evictions_(Counters(registry_, "holdfast_pool_evictions_total",
                          "Cached blocks that were taken for new rows")
                     .Add({})),
      prefill_tokens_(Counters(registry_, "holdfast_prefill_tokens_total",
                               "Prompt rows forwarded, step by step")
                          .Add({})),
      prefix_queries_(Counters(registry_, "holdfast_prefix_cache_queries_total",
                               "Prompt tokens that were looked for in caches")
                          .Add({})),
      prefix_hits_(Counters(registry_, "holdfast_prefix_cache_hits_total",
                            "Of these, tokens that were found")
                       .Add({})),
      pool_usage_(BuildGauge()
                      .Name("holdfast_kv_cache_usage_perc")
                      .Help("Share of the pool's blocks that are not free; 1 "
                            "means all")
                      .Register(registry_)
                      .Add({})),
      in_flight_waits_(Counters(registry_, "holdfast_in_flight_waits_total",
                                "Requests that waited for rows that another "
                                "one was computing")
                           .Add({})),
      late_owners_(Counters(registry_, "holdfast_in_flight_late_total",
                            "Such waits given up")
                       .Add({})),
      preemptions_(Counters(registry_, "holdfast_num_preemptions_total",
                            "Times a running request gave its seat up for an "
                            "older one that needed blocks")
                       .Add({})),
      recomputed_tokens_(Counters(registry_, "holdfast_recomputed_tokens_total",
                                  "Rows forwarded again after a preemption")
                             .Add({})),
      running_(BuildGauge()
                   .Name("holdfast_num_requests_running")
                   .Help("Requests that run")
                   .Register(registry_)
                   .Add({})),
      waiting_(BuildGauge()
                   .Name("holdfast_num_requests_waiting")
                   .Help("Requests in the queue")
                   .Register(registry_)
                   .Add({})),
      hit_rate_(BuildGauge()
                    .Name("holdfast_prefix_cache_hit_rate")
                    .Help("Cached share of the prompt tokens of the newest "
                          "1,000 requests that read the cache")
                    .Register(registry_)
                    .Add({})),
      queue_seconds_(Seconds(registry_, "holdfast_request_queue_time_seconds",
                             "Time in the queue")),
      prefill_seconds_(Seconds(registry_,
                               "holdfast_request_prefill_time_seconds",
                               "Time of resume and prefill")),
      decode_seconds_(Seconds(registry_, "holdfast_request_decode_time_seconds",
                              "Time of decode")),
      first_token_seconds_(
          Seconds(registry_, "holdfast_time_to_first_token_seconds",
                  "Time from arrival to the end of the prefill")) {}

void EngineMetrics::Refused(const Refusal& refusal) {
  refused_.Add({{"reason", RefusalName(refusal.reason)}}).Increment();
  totals_.Refused(RefusalName(refusal.reason));
}

void EngineMetrics::Finished(const Result& result) {
  totals_.Finished(result);
  requests_.Add({{"finish_reason", FinishReasonName(result.reason)}})
      .Increment();
  prompt_tokens_.Add({{"source", "computed"}}).Increment(result.cache.computed);
  for (const auto& [source, rows] : CachedBySource(result.cache)) {
    prompt_tokens_.Add({{"source", CacheSourceName(source)}}).Increment(rows);
  }
  if (result.cache.resumed_at > 0) {
    const auto& anchor = result.cache.anchor;
    resumes_.Add({{"anchor", anchor ? AnchorKindName(*anchor) : "rows"}})
        .Increment();
  }
  if (result.cache.miss != MissReason::kNone) {
    misses_.Add({{"reason", MissReasonName(result.cache.miss)}}).Increment();
  }
  if (result.cache.miss != MissReason::kBypass) {
    prefix_queries_.Increment(result.prompt_tokens);
    prefix_hits_.Increment(result.cache.resumed_at);
  }
  generation_tokens_.Increment(result.output_tokens);
  recomputed_tokens_.Increment(result.recomputed);
  const Timing& timing = result.timing;
  queue_seconds_.Observe(timing.queue_ms / 1000);
  prefill_seconds_.Observe(timing.prefill_ms / 1000);
  if (result.output_tokens == 0) return;
  decode_seconds_.Observe(timing.decode_ms / 1000);
  first_token_seconds_.Observe((timing.queue_ms + timing.prefill_ms) / 1000);
}

std::string EngineMetrics::Text(const EngineGauges& gauges) {
  std::lock_guard lock(text_mutex_);  // Raise reads, then writes
  running_.Set(gauges.running);
  waiting_.Set(gauges.waiting);
  hit_rate_.Set(totals_.values().recent.rate());
  blocks_.Add({{"state", "free"}}).Set(gauges.free_blocks);
  blocks_.Add({{"state", "used"}}).Set(gauges.used_blocks);
  blocks_.Add({{"state", "cached"}}).Set(gauges.cached_blocks);
  anchors_.Set(gauges.anchors);
  for (int kind = 0; kind < kAnchorKinds; ++kind) {
    if (gauges.anchors_taken[kind] == 0) continue;
    const char* name = AnchorKindName(static_cast<AnchorKind>(kind));
    Raise(anchors_taken_.Add({{"kind", name}}), gauges.anchors_taken[kind]);
  }
  Raise(anchors_dropped_.Add({{"reason", "budget"}}),
        gauges.anchors_dropped_budget);
  Raise(anchors_dropped_.Add({{"reason", "rows"}}),
        gauges.anchors_dropped_rows);
  Raise(evictions_, gauges.evictions);
  Raise(preemptions_, gauges.preemptions);
  Raise(in_flight_waits_, gauges.in_flight_waits);
  Raise(late_owners_, gauges.late_owners);
  pool_usage_.Set(PoolUsage(gauges));
  Raise(prefill_tokens_, gauges.prefill_tokens);
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  families.push_back(AgesFamily(gauges.eviction_ages));
  AddRetentionMetrics(gauges.retention, families);
  if (gauges.tiers != nullptr) {
    AddTierMetrics(*gauges.tiers, gauges.leases, gauges.leases_revoked,
                   families);
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace holdfast::engine
