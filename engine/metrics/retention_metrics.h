// Prometheus metrics of what the pool keeps of conversations.
#ifndef HOLDFAST_ENGINE_METRICS_RETENTION_METRICS_H_
#define HOLDFAST_ENGINE_METRICS_RETENTION_METRICS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "engine/pool/retention_class.h"
#include "prometheus/metric_family.h"

namespace holdfast::engine {

// By RetentionClass.
struct RetentionGauges {
  std::array<int, kRetentionClasses> blocks{};  // of kNone: lent ones
  std::array<int, kRetentionClasses> anchors{};
  std::array<std::uint64_t, kRetentionClasses> blocks_cut{};
  int kept = 0;  // conversations without a seat
  std::uint64_t displaced = 0;
  std::uint64_t guests = 0;
  std::uint64_t guest_overflows = 0;
};

// Every class has its series from the start, at zero.
void AddRetentionMetrics(const RetentionGauges& gauges,
                         std::vector<prometheus::MetricFamily>& families);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_METRICS_RETENTION_METRICS_H_
