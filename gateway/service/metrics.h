// The gateway's own Prometheus metrics.
#ifndef HOLDFAST_GATEWAY_SERVICE_METRICS_H_
#define HOLDFAST_GATEWAY_SERVICE_METRICS_H_

#include <memory>
#include <string>

#include "gateway/http/server.h"
#include "gateway/service/request_record.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace holdfast::gateway {

// Whether the other daemons answered when they were asked for their metrics.
struct DaemonsUp {
  bool engine = false;
  bool cachesvc = false;
};

// Thread-safe. Names do not clash with the engine's: what both measure is
// called holdfast_http_... here, being what a client sees.
class GatewayMetrics {
 public:
  GatewayMetrics();

  void Finished(const RequestRecord& record);
  // Text exposition, with the server's counters and the daemons' gauges.
  std::string Text(const http::ServerStats& server, const DaemonsUp& up) const;

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Histogram>& duration_;
  prometheus::Histogram& first_token_;
  prometheus::Counter& stream_errors_;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_METRICS_H_
