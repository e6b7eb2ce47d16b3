// The log line of what the engine did lately.
#ifndef HOLDFAST_ENGINE_METRICS_STATS_LINE_H_
#define HOLDFAST_ENGINE_METRICS_STATS_LINE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/metrics/engine_metrics.h"

namespace holdfast::engine {

// Every kPeriod, while something happens. One thread.
class StatsLine {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kPeriod{10};

  explicit StatsLine(TimePoint start) : last_(start) {}

  bool Due(TimePoint now) const { return now - last_ >= kPeriod; }
  // Nothing when it is not due, or nothing was computed since the last line
  // and nothing runs or waits.
  std::optional<std::string> Next(const EngineGauges& gauges, TimePoint now);

 private:
  TimePoint last_;
  std::uint64_t prefilled_ = 0;
  std::uint64_t generated_ = 0;
};

// Blocks that are no longer free, 0 to 1.
double PoolUsage(const EngineGauges& gauges);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_METRICS_STATS_LINE_H_
