// The attached engine's pool where it lies in a device's memory (deploy/GPU.md,
// arena `cuda_ipc`). Only copies of it are ever read.
#ifndef HOLDFAST_CACHESVC_DEVICE_DEVICE_POOL_H_
#define HOLDFAST_CACHESVC_DEVICE_DEVICE_POOL_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cachesvc/device/device_mapper.h"
#include "cachesvc/device/device_thread.h"
#include "cachesvc/device/process_watch.h"
#include "cachesvc/device/row_staging.h"
#include "shared/arena/device_pool.h"
#include "shared/clock/clock.h"
#include "shared/deadlines.h"

namespace holdfast::cachesvc {

// Thread-safe. Held by the attach and by the stores that read it.
class DevicePool {
 public:
  struct Options {
    holdfast::DevicePool pool;  // but for what is in its check
    std::uint64_t block_bytes = 0;
    std::uint64_t piece_blocks = 0;  // of a chunk: so many are staged at once
    std::uint32_t engine_pid = 0;    // as the kernel tells it here
    // Of a copy of so many bytes.
    std::function<std::chrono::milliseconds(std::uint64_t)> copy_deadline =
        deadlines::DeviceCopy;
  };
  struct Mapped {
    std::shared_ptr<DevicePool> pool;
    DeviceCheck check = {};  // read out of the memory
    std::string staging;     // how its host memory is, for the log
  };
  // The error says why the memory cannot be read.
  static absl::StatusOr<Mapped> Map(const Options& options,
                                    std::shared_ptr<DeviceMapper> mapper,
                                    std::shared_ptr<DeviceQueue> queue,
                                    Deadline deadline);
  ~DevicePool() { Close(); }
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  std::uint64_t block_count() const { return options_.pool.block_count; }
  std::uint64_t piece_blocks() const { return options_.piece_blocks; }
  std::uint64_t staging_bytes() const { return staging_->bytes(); }

  struct Copies {
    std::vector<const std::byte*> blocks;
    std::shared_ptr<const void> keep_alive;  // their memory
  };
  // Copies of at most piece_blocks() blocks, in host memory. Whether they hold
  // what was lent, the lease says. Aborted: the engine has gone, and what was
  // read is worth nothing; DeadlineExceeded: no staging came free; Unavailable:
  // the device failed, and nothing will be read any more.
  absl::StatusOr<Copies> Copy(std::span<const std::uint32_t> blocks,
                              Deadline deadline);

  // Why nothing will be read any more; empty: it will.
  std::string failure() const;

  // The engine has detached: unmaps, behind the copies under way. Does not
  // wait; idempotent.
  void Close();

 private:
  // Of the device thread.
  struct Mapping {
    std::shared_ptr<RowStaging> staging;
    std::vector<std::unique_ptr<PinnedHostMemory>> pins;
    std::unique_ptr<MappedDeviceMemory> memory;
    std::string not_pinned;
  };

  DevicePool(const Options& options, ProcessWatch engine,
             std::shared_ptr<DeviceQueue> queue,
             std::shared_ptr<Mapping> mapping);
  static absl::Status Open(const Options& options, DeviceMapper& mapper,
                           Mapping& mapping, DeviceCheck& check);
  absl::Status RunCopy(std::vector<MappedDeviceMemory::Part> parts,
                       std::shared_ptr<std::byte> piece);
  absl::Status Failed(const std::string& why);

  const Options options_;
  const ProcessWatch engine_;
  const std::shared_ptr<DeviceQueue> queue_;
  const std::shared_ptr<RowStaging> staging_;
  const std::shared_ptr<Mapping> mapping_;
  std::atomic<bool> closed_{false};
  mutable std::mutex mutex_;
  std::string failed_;  // guarded by mutex_; empty: not yet
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_DEVICE_DEVICE_POOL_H_
