#include "gateway/service/metrics.h"

#include <vector>

#include "fmt/format.h"
#include "prometheus/gauge.h"
#include "prometheus/text_serializer.h"

namespace holdfast::gateway {
namespace {

// From a warm short prompt to a cold one of 128k tokens.
const prometheus::Histogram::BucketBoundaries kSeconds = {
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,  2.5,
    5,     10,   20,    40,   80,  160,  320, 640};

prometheus::MetricFamily Single(const char* name, const char* help,
                                prometheus::MetricType type, double value) {
  prometheus::ClientMetric metric;
  (type == prometheus::MetricType::Counter ? metric.counter.value
                                           : metric.gauge.value) = value;
  return {name, help, type, {metric}};
}

void AddServer(const http::ServerStats& server,
               std::vector<prometheus::MetricFamily>& families) {
  using prometheus::MetricType;
  const auto add = [&](const char* name, const char* help, MetricType type,
                       std::uint64_t value) {
    families.push_back(Single(name, help, type, static_cast<double>(value)));
  };
  add("holdfast_http_connections", "Open HTTP connections", MetricType::Gauge,
      server.connections);
  add("holdfast_http_connections_total", "Accepted HTTP connections",
      MetricType::Counter, server.accepted);
  add("holdfast_http_connections_refused_total",
      "HTTP connections over --max-connections", MetricType::Counter,
      server.refused);
  add("holdfast_http_client_disconnects_total",
      "Clients that left before their answer ended", MetricType::Counter,
      server.client_gone);
  add("holdfast_http_read_timeouts_total",
      "Requests that did not arrive in time", MetricType::Counter,
      server.read_timeouts);
  add("holdfast_http_write_timeouts_total",
      "Clients dropped for taking no bytes", MetricType::Counter,
      server.write_timeouts);
  add("holdfast_http_bad_requests_total",
      "Requests that were not HTTP or over a limit", MetricType::Counter,
      server.bad_requests);
}

prometheus::MetricFamily UpFamily(const DaemonsUp& up) {
  prometheus::MetricFamily family{"holdfast_up",
                                  "Whether a daemon answered this scrape",
                                  prometheus::MetricType::Gauge,
                                  {}};
  const auto add = [&](const char* daemon, bool is_up) {
    prometheus::ClientMetric metric;
    metric.label = {{"daemon", daemon}};
    metric.gauge.value = is_up ? 1 : 0;
    family.metric.push_back(metric);
  };
  add("engine", up.engine);
  add("cachesvc", up.cachesvc);
  return family;
}

}  // namespace

GatewayMetrics::GatewayMetrics()
    : requests_(prometheus::BuildCounter()
                    .Name("holdfast_http_requests_total")
                    .Help("HTTP requests by route and status code")
                    .Register(registry_)),
      duration_(prometheus::BuildHistogram()
                    .Name("holdfast_http_request_duration_seconds")
                    .Help("Completions: from the whole request to the end of "
                          "the answer")
                    .Register(registry_)),
      first_token_(
          prometheus::BuildHistogram()
              .Name("holdfast_http_time_to_first_token_seconds")
              .Help("From the whole request to the first generated token")
              .Register(registry_)
              .Add({}, kSeconds)),
      stream_errors_(prometheus::BuildCounter()
                         .Name("holdfast_http_stream_errors_total")
                         .Help("Streams that ended with an error event")
                         .Register(registry_)
                         .Add({})) {}

void GatewayMetrics::Finished(const RequestRecord& record) {
  requests_
      .Add({{"path", record.route}, {"code", std::to_string(record.status)}})
      .Increment();
  if (record.generation) {
    duration_.Add({{"path", record.route}}, kSeconds)
        .Observe(record.ElapsedMs() / 1000);
  }
  if (record.stream_error) stream_errors_.Increment();
  if (record.first_token_ms.has_value())
    first_token_.Observe(*record.first_token_ms / 1000);
}

std::string GatewayMetrics::Text(const http::ServerStats& server,
                                 const DaemonsUp& up) const {
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  AddServer(server, families);
  families.push_back(UpFamily(up));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace holdfast::gateway
