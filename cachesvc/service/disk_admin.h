// What operators see of the tiers, as the wire has it.
#ifndef HOLDFAST_CACHESVC_SERVICE_DISK_ADMIN_H_
#define HOLDFAST_CACHESVC_SERVICE_DISK_ADMIN_H_

#include <string>

#include "absl/status/status.h"
#include "cachesvc/service/tiers.h"
#include "holdfast/v1/cache.pb.h"

namespace holdfast::cachesvc {

void FillTierStatus(const Tiers& tiers, v1::CacheStatus* status);
void FillStats(const Tiers& tiers, v1::CacheStats* stats);
// Sorted and cut as asked. `tiers` has what is asked for.
void FillList(const Tiers& tiers, const v1::CacheListRequest& request,
              v1::CacheListResponse* response);
void FillEntry(const ManifestInfo& info, v1::CacheEntry* entry);
// The limits that the request changes, the others as they are. An error names
// the field.
absl::StatusOr<StoreLimits> NewLimits(const StoreLimits& now,
                                      const v1::CacheSetDiskRequest& request,
                                      bool allow_small_free_space);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_SERVICE_DISK_ADMIN_H_
