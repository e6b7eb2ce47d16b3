// Prometheus metrics of the response cache.
#ifndef HOLDFAST_ENGINE_RESPONSE_RESPONSE_METRICS_H_
#define HOLDFAST_ENGINE_RESPONSE_RESPONSE_METRICS_H_

#include <string>

#include "engine/response/response_cache.h"

namespace holdfast::engine {

// Text exposition.
std::string ResponseMetricsText(const ResponseCache::Stats& stats);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RESPONSE_RESPONSE_METRICS_H_
