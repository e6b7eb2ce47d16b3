// The device's pool of each attach, for the service's calls.
#ifndef HOLDFAST_CACHESVC_DEVICE_DEVICE_POOLS_H_
#define HOLDFAST_CACHESVC_DEVICE_DEVICE_POOLS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "cachesvc/device/device_mapper.h"
#include "cachesvc/device/device_pool.h"
#include "cachesvc/device/device_thread.h"

namespace holdfast::cachesvc {

// Thread-safe.
class DevicePools {
 public:
  // Null: nothing can be mapped.
  explicit DevicePools(std::unique_ptr<DeviceMapper> mapper);

  // The attach of this epoch is the newest: what an earlier one had is closed.
  // Whoever calls knows that it has not ended yet, and that no later one has
  // begun.
  void Begin(std::uint64_t epoch);
  // Maps it, within deadlines::kDeviceMap, in the place of what the epoch had.
  // The check is what was read out of it; the error says why it is not mapped.
  // Aborted, and nothing else changes: another attach has begun since.
  absl::StatusOr<DeviceCheck> Map(std::uint64_t epoch,
                                  const DevicePool::Options& options);
  // Null: it has none.
  std::shared_ptr<DevicePool> Get(std::uint64_t epoch) const;
  // The end of an attach. Does not wait.
  void Drop(std::uint64_t epoch);
  // When it returns, the memory is unmapped, or deadlines::kDeviceUnmap is
  // over.
  void Unmap(std::uint64_t epoch);

 private:
  // False: the epoch is not that of the newest attach.
  bool CloseOwn(std::uint64_t epoch);

  const std::shared_ptr<DeviceMapper> mapper_;
  std::optional<DeviceThread> thread_;
  mutable std::mutex mutex_;
  std::uint64_t epoch_ = 0;           // guarded by mutex_; no attach has 0
  std::shared_ptr<DevicePool> pool_;  // guarded by mutex_
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_DEVICE_DEVICE_POOLS_H_
