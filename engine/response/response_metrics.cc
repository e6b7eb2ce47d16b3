#include "engine/response/response_metrics.h"

#include <utility>
#include <vector>

#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"

namespace holdfast::engine {

std::string ResponseMetricsText(const ResponseCache::Stats& stats) {
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families;
  const auto add = [&](const char* name, const char* help, MetricType type,
                       std::uint64_t value) {
    prometheus::ClientMetric metric;
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) =
        static_cast<double>(value);
    families.push_back({name, help, type, {std::move(metric)}});
  };
  add("holdfast_response_cache_entries", "Answers held", MetricType::Gauge,
      stats.entries);
  add("holdfast_response_cache_bytes", "Bytes of the answers held",
      MetricType::Gauge, stats.bytes);
  add("holdfast_response_cache_hits_total", "Requests answered from it",
      MetricType::Counter, stats.hits);
  add("holdfast_response_cache_misses_total",
      "Greedy requests that had no answer there", MetricType::Counter,
      stats.misses);
  add("holdfast_response_cache_evictions_total",
      "Answers dropped for another one", MetricType::Counter, stats.evictions);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace holdfast::engine
