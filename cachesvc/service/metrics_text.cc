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

}  // namespace

std::string MetricsText(const attach::AttachServerState& state,
                        std::uint64_t staging_bytes) {
  const std::vector<MetricFamily> families = {
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
            "Size of the staging memory for restores", staging_bytes)};
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace holdfast::cachesvc
