// A device's memory as the cache service gets at it. Two implementations:
// cuda_mapper.cc where the build has the CUDA backend, mapper_absent.cc where
// it has not. The service's library has neither: a program links the one it
// wants, tests one on an emulated device.
#ifndef HOLDFAST_CACHESVC_DEVICE_DEVICE_MAPPER_H_
#define HOLDFAST_CACHESVC_DEVICE_DEVICE_MAPPER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "shared/arena/device_pool.h"

namespace holdfast::cachesvc {

// Another process's device memory. Unmapped when destroyed.
class MappedDeviceMemory {
 public:
  virtual ~MappedDeviceMemory() = default;

  struct Part {
    std::uint64_t offset = 0;
    std::span<std::byte> to;
  };
  // When it returns, the bytes are there, or an error says that some are not.
  virtual absl::Status Copy(std::span<const Part> parts) = 0;
};

// Host memory that is pinned as long as this lives.
class PinnedHostMemory {
 public:
  virtual ~PinnedHostMemory() = default;
};

// All calls, and the ends of what they return, from one thread: any may hang in
// the driver.
class DeviceMapper {
 public:
  virtual ~DeviceMapper() = default;
  virtual absl::StatusOr<std::unique_ptr<MappedDeviceMemory>> Map(
      const DeviceMemoryHandle& handle) = 0;
  virtual absl::StatusOr<std::unique_ptr<PinnedHostMemory>> Pin(
      std::span<std::byte> memory) = 0;
};

// Touches no device yet. Null: this build has no CUDA.
std::unique_ptr<DeviceMapper> MakeDeviceMapper();

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_DEVICE_DEVICE_MAPPER_H_
