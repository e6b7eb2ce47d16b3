// Statistics of the daemons as JSON: GET /v1/cache/stats and cachectl.
#ifndef HOLDFAST_SHARED_STATS_JSON_H_
#define HOLDFAST_SHARED_STATS_JSON_H_

#include "holdfast/v1/cache.pb.h"
#include "holdfast/v1/engine.pb.h"
#include "nlohmann/json.hpp"

namespace holdfast {

// Every field is there, at zero where nothing was counted, but for parts that
// are switched off; names of sources
// and reasons are there from their first count on, in order of name.
nlohmann::ordered_json StatsJson(const v1::EngineStats& stats);
nlohmann::ordered_json StatsJson(const v1::CacheStats& stats);

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_STATS_JSON_H_
