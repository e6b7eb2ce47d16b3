#include "engine/metrics/retention_metrics.h"

#include <string>
#include <utility>

namespace holdfast::engine {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

void AddOne(const char* name, const char* help, MetricType type, double value,
            std::vector<MetricFamily>& families) {
  ClientMetric metric;
  (type == MetricType::Gauge ? metric.gauge.value : metric.counter.value) =
      value;
  families.push_back({name, help, type, {metric}});
}

template <typename Values>
void AddByClass(const char* name, const char* help, MetricType type,
                const Values& values, std::vector<MetricFamily>& families) {
  MetricFamily family{name, help, type, {}};
  for (std::size_t c = 0; c < kRetentionClasses; ++c) {
    ClientMetric metric;
    metric.label = {
        {"class", RetentionClassName(static_cast<RetentionClass>(c))}};
    const auto value = static_cast<double>(values[c]);
    (type == MetricType::Gauge ? metric.gauge.value : metric.counter.value) =
        value;
    family.metric.push_back(std::move(metric));
  }
  families.push_back(std::move(family));
}

}  // namespace

void AddRetentionMetrics(const RetentionGauges& gauges,
                         std::vector<MetricFamily>& families) {
  AddByClass("holdfast_retained_blocks",
             "Used blocks, by what they are kept for (class=none: lent to the "
             "cache service)",
             MetricType::Gauge, gauges.blocks, families);
  AddByClass("holdfast_retained_anchors", "Anchors, by whose budget pays",
             MetricType::Gauge, gauges.anchors, families);
  AddByClass("holdfast_retained_blocks_cut_total",
             "Blocks that conversations without a seat lost, by class",
             MetricType::Counter, gauges.blocks_cut, families);
  AddOne("holdfast_retained_conversations",
         "Conversations that are kept without a seat", MetricType::Gauge,
         gauges.kept, families);
  AddOne("holdfast_displaced_total",
         "Conversations that another request took the seat of",
         MetricType::Counter, static_cast<double>(gauges.displaced), families);
  AddOne("holdfast_guests_total",
         "Requests that ran beside the conversation of their seat",
         MetricType::Counter, static_cast<double>(gauges.guests), families);
  AddOne("holdfast_guest_overflow_total",
         "Guests for which that conversation lost rows", MetricType::Counter,
         static_cast<double>(gauges.guest_overflows), families);
}

}  // namespace holdfast::engine
