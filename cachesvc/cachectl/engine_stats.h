// What cachectl tells of the engine, which may be absent.
#ifndef HOLDFAST_CACHESVC_CACHECTL_ENGINE_STATS_H_
#define HOLDFAST_CACHESVC_CACHECTL_ENGINE_STATS_H_

#include <string>

#include "absl/status/statusor.h"
#include "holdfast/v1/engine.pb.h"

namespace holdfast::cachesvc {

// Each asks the engine of that run directory, within a control call's deadline.
absl::StatusOr<v1::EngineStats> FetchEngineStats(const std::string& run_dir);
absl::StatusOr<v1::EngineStatus> FetchEngineStatus(const std::string& run_dir);

// Ends with a newline.
std::string EngineStatsTable(const absl::StatusOr<v1::EngineStats>& stats);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_CACHECTL_ENGINE_STATS_H_
