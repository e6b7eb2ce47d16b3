#include "engine/metrics/stats_line.h"

#include <algorithm>

#include "fmt/format.h"

namespace holdfast::engine {

double PoolUsage(const EngineGauges& gauges) {
  const int blocks =
      gauges.free_blocks + gauges.used_blocks + gauges.cached_blocks;
  return blocks == 0 ? 0
                     : 1.0 - static_cast<double>(gauges.free_blocks) / blocks;
}

std::optional<std::string> StatsLine::Next(const EngineGauges& gauges,
                                           TimePoint now) {
  if (!Due(now)) return std::nullopt;
  const double seconds = std::chrono::duration<double>(now - last_).count();
  const std::uint64_t prompt = gauges.prefill_tokens - prefilled_;
  const std::uint64_t output = gauges.generated_tokens - generated_;
  last_ = now;
  prefilled_ = gauges.prefill_tokens;
  generated_ = gauges.generated_tokens;
  if (prompt == 0 && output == 0 && gauges.running == 0 &&
      gauges.waiting == 0) {
    return std::nullopt;
  }
  const double age = gauges.evictions == 0
                         ? 0
                         : gauges.eviction_ages.seconds /
                               static_cast<double>(gauges.evictions);
  return fmt::format(
      "stats prompt_tokens_per_s={:.1f} generated_tokens_per_s={:.1f} "
      "running={} waiting={} preemptions={} pool_usage={:.1f}% "
      "prefix_cache_hit_rate={:.1f}% evictions={} mean_eviction_age_s={:.0f}",
      static_cast<double>(prompt) / seconds,
      static_cast<double>(output) / seconds, gauges.running, gauges.waiting,
      gauges.preemptions, 100 * PoolUsage(gauges), 100 * gauges.recent_hit_rate,
      gauges.evictions, age);
}

}  // namespace holdfast::engine
