// The engine's Prometheus metrics.
#ifndef HOLDFAST_ENGINE_METRICS_ENGINE_METRICS_H_
#define HOLDFAST_ENGINE_METRICS_ENGINE_METRICS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "engine/anchors/anchor.h"
#include "engine/cache/tiering.h"
#include "engine/metrics/request_totals.h"
#include "engine/metrics/retention_metrics.h"
#include "engine/pool/block_pool.h"
#include "engine/scheduler/request.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace holdfast::engine {

struct EngineGauges {
  int running = 0;
  int waiting = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t in_flight_waits = 0;
  std::uint64_t late_owners = 0;  // waits given up
  double recent_hit_rate = 0;     // of the newest requests
  std::uint64_t generated_tokens = 0;
  BlockPool::EvictionAges eviction_ages;
  int free_blocks = 0;
  int used_blocks = 0;
  int cached_blocks = 0;
  std::uint64_t evictions = 0;
  std::uint64_t prefill_tokens = 0;
  int anchors = 0;  // slots that hold one
  std::array<std::uint64_t, kAnchorKinds> anchors_taken{};  // by AnchorKind
  std::uint64_t anchors_dropped_budget = 0;
  std::uint64_t anchors_dropped_rows = 0;
  RetentionGauges retention;
  std::shared_ptr<const TierCounters> tiers;  // null: there are none
  int leases = 0;                             // stores not ended
  std::uint64_t leases_revoked = 0;
};

// Thread-safe. Conservation: holdfast_prompt_tokens_total over its sources is
// the number of prompt tokens whose rows requests came to have.
class EngineMetrics {
 public:
  EngineMetrics();

  void Refused(const Refusal& refusal);
  void Finished(const Result& result);
  const RequestTotals& totals() const { return totals_; }
  // Text exposition, gauges as given.
  std::string Text(const EngineGauges& gauges);

 private:
  RequestTotals totals_;
  std::mutex text_mutex_;
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& prompt_tokens_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Counter>& refused_;
  prometheus::Family<prometheus::Counter>& misses_;
  prometheus::Family<prometheus::Gauge>& blocks_;
  prometheus::Family<prometheus::Counter>& resumes_;
  prometheus::Family<prometheus::Counter>& anchors_taken_;
  prometheus::Family<prometheus::Counter>& anchors_dropped_;
  prometheus::Gauge& anchors_;
  prometheus::Counter& generation_tokens_;
  prometheus::Counter& evictions_;
  prometheus::Counter& prefill_tokens_;
  prometheus::Counter& prefix_queries_;
  prometheus::Counter& prefix_hits_;
  prometheus::Gauge& pool_usage_;
  prometheus::Counter& in_flight_waits_;
  prometheus::Counter& late_owners_;
  prometheus::Counter& preemptions_;
  prometheus::Counter& recomputed_tokens_;
  prometheus::Gauge& running_;
  prometheus::Gauge& waiting_;
  prometheus::Gauge& hit_rate_;
  prometheus::Histogram& queue_seconds_;
  prometheus::Histogram& prefill_seconds_;
  prometheus::Histogram& decode_seconds_;
  prometheus::Histogram& first_token_seconds_;
};

const char* RefusalName(Refusal::Reason reason);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_METRICS_ENGINE_METRICS_H_
