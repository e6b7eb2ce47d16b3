// What cachectl prints of the tiers.
#ifndef HOLDFAST_CACHESVC_CACHECTL_RENDER_DISK_H_
#define HOLDFAST_CACHESVC_CACHECTL_RENDER_DISK_H_

#include <string>

#include "absl/status/statusor.h"
#include "holdfast/v1/cache.pb.h"
#include "holdfast/v1/engine.pb.h"

namespace holdfast::cachesvc {

// Tables end with a newline; JSON is one object without one, with the proto's
// field names, keys in hex and tiers by name.
std::string StatsTable(const v1::CacheStats& stats);
std::string StatsJson(const v1::CacheStats& stats);
// With the engine's under "engine", or why they are not there.
std::string StatsJson(const v1::CacheStats& stats,
                      const absl::StatusOr<v1::EngineStats>& engine);
// Bytes by tier against their budgets.
std::string UseTable(const v1::CacheStats& stats);
std::string ListTable(const v1::CacheListResponse& list, bool chunks);
std::string ListJson(const v1::CacheListResponse& list);
std::string EntryText(const v1::CacheEntry& entry);
std::string EntryJson(const v1::CacheEntry& entry);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_CACHECTL_RENDER_DISK_H_
