#include "cachesvc/device/device_pools.h"

#include <utility>

#include "shared/deadlines.h"
#include "spdlog/spdlog.h"

namespace holdfast::cachesvc {

DevicePools::DevicePools(std::unique_ptr<DeviceMapper> mapper)
    : mapper_(std::move(mapper)) {
  if (mapper_ != nullptr) thread_.emplace();
}

absl::StatusOr<DeviceCheck> DevicePools::Map(
    std::uint64_t epoch, const DevicePool::Options& options) {
  if (mapper_ == nullptr) {
    return absl::UnimplementedError("the cache service was built without CUDA");
  }
  const auto late = [] {
    return absl::AbortedError("another engine has attached meanwhile");
  };
  // Before the new one is opened, also when that fails.
  if (!CloseOwn(epoch)) return late();
  auto mapped = DevicePool::Map(options, mapper_, thread_->queue(),
                                SteadyClock().Now() + deadlines::kDeviceMap);
  if (!mapped.ok()) return mapped.status();
  spdlog::info(
      "device pool of engine pid {} mapped bytes={} staging_bytes={} ({})",
      options.engine_pid, options.pool.memory.bytes,
      mapped->pool->staging_bytes(), mapped->staging);
  const std::lock_guard lock(mutex_);
  if (epoch_ != epoch) return late();
  pool_ = std::move(mapped->pool);
  return mapped->check;
}

std::shared_ptr<DevicePool> DevicePools::Get(std::uint64_t epoch) const {
  const std::lock_guard lock(mutex_);
  return epoch == epoch_ ? pool_ : nullptr;
}

void DevicePools::Drop(std::uint64_t epoch) {
  std::shared_ptr<DevicePool> old;
  {
    const std::lock_guard lock(mutex_);
    if (epoch == epoch_) old = std::exchange(pool_, nullptr);
  }
  if (old != nullptr) old->Close();
}

void DevicePools::Unmap(std::uint64_t epoch) {
  if (Get(epoch) == nullptr) return;
  Drop(epoch);
  (void)thread_->queue()->Run([] {},
                              SteadyClock().Now() + deadlines::kDeviceUnmap);
}

// Stores that still hold it are told so.
void DevicePools::Begin(std::uint64_t epoch) {
  std::shared_ptr<DevicePool> old;
  {
    const std::lock_guard lock(mutex_);
    if (epoch == epoch_) return;
    epoch_ = epoch;
    old = std::exchange(pool_, nullptr);
  }
  if (old != nullptr) old->Close();
}

bool DevicePools::CloseOwn(std::uint64_t epoch) {
  std::shared_ptr<DevicePool> old;
  {
    const std::lock_guard lock(mutex_);
    if (epoch != epoch_) return false;
    old = std::exchange(pool_, nullptr);
  }
  if (old != nullptr) old->Close();
  return true;
}

}  // namespace holdfast::cachesvc
