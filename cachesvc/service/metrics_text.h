// The cache service's metrics in Prometheus' text format.
#ifndef HOLDFAST_CACHESVC_SERVICE_METRICS_TEXT_H_
#define HOLDFAST_CACHESVC_SERVICE_METRICS_TEXT_H_

#include <cstdint>
#include <string>

#include "holdfast/v1/cache.pb.h"
#include "shared/attach/attach_server.h"

namespace holdfast::cachesvc {

// Every reason of a refusal, and every tier, has its series from the start, at
// zero.
std::string MetricsText(const attach::AttachServerState& state,
                        std::uint64_t staging_bytes,
                        const v1::CacheStats& stats);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_SERVICE_METRICS_TEXT_H_
