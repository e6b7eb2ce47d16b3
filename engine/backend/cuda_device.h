// The CUDA device as the engine sees it. Two implementations: cuda_device.cc
// where the build has the CUDA backend, cuda_absent.cc where it has not. The
// engine's library has neither: a program links the one it wants, tests one on
// an emulated device.
#ifndef HOLDFAST_ENGINE_BACKEND_CUDA_DEVICE_H_
#define HOLDFAST_ENGINE_BACKEND_CUDA_DEVICE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "shared/arena/device_pool.h"

namespace holdfast::engine {

// Bytes that model, pool and caches may take, and how they were found.
struct DeviceBudget {
  std::uint64_t bytes = 0;
  std::string how;
};

// How the cache service gets at rows (deploy/GPU.md, arena kinds).
struct DeviceArena {
  bool ipc = false;    // the cache service could map the device's memory
  std::string reason;  // why, or why not
};

struct DeviceMemoryUse {
  std::string what;
  std::uint64_t bytes = 0;
};

// Host memory that is pinned as long as this lives.
class PinnedHostMemory {
 public:
  virtual ~PinnedHostMemory() = default;
};

class CudaDevice {
 public:
  virtual ~CudaDevice() = default;
  virtual kernels::Backend& backend() = 0;
  // Of now: less what was taken before.
  virtual absl::StatusOr<DeviceBudget> Budget() = 0;
  // A round trip with a second process, `program` with RunCudaPeer's flag.
  // Never longer than the deadline.
  virtual DeviceArena ProbeArena(const std::string& program,
                                 std::chrono::milliseconds deadline) = 0;
  // Memory of the backend as another process can map it. The error says why
  // not.
  virtual absl::StatusOr<DeviceMemoryHandle> Export(
      const kernels::Buffer& memory) = 0;
  // Memory that outlives what is returned.
  virtual absl::StatusOr<std::unique_ptr<PinnedHostMemory>> Pin(
      std::byte* memory, std::uint64_t bytes) = 0;
  // What the backend took for itself so far.
  virtual std::vector<DeviceMemoryUse> Memory() = 0;
};

// The error says why there is none: the driver's reason, or that the build has
// no CUDA backend.
absl::StatusOr<std::unique_ptr<CudaDevice>> OpenCudaDevice();

// The device's facts as JSON; `program`: this one's path, for the probe's
// second process.
std::string CudaFactsJson(const std::string& program);

// The exit status of the probe's second process; none: the arguments do not
// ask for one.
std::optional<int> RunCudaPeer(int argc, char** argv);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_BACKEND_CUDA_DEVICE_H_
