#include <cstring>
#include <utility>
#include <vector>

#include "cachesvc/device/device_mapper.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/ipc/imported_pool.h"

namespace holdfast::cachesvc {
namespace {

// The codes matter to nobody; the words say what the driver said.
absl::Status ToAbsl(const kernels::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::UnavailableError(status.message());
}

class Mapped final : public MappedDeviceMemory {
 public:
  explicit Mapped(kernels::cuda::ImportedPool pool) : pool_(std::move(pool)) {}

  absl::Status Copy(std::span<const Part> parts) override {
    std::vector<kernels::cuda::ImportedPool::Part> copies;
    for (const Part& part : parts) {
      copies.push_back({static_cast<std::size_t>(part.offset), part.to});
    }
    return ToAbsl(pool_.Copy(copies));
  }

 private:
  kernels::cuda::ImportedPool pool_;
};

class Pinned final : public PinnedHostMemory {
 public:
  explicit Pinned(kernels::cuda::PinnedRegion region)
      : region_(std::move(region)) {}

 private:
  kernels::cuda::PinnedRegion region_;
};

class CudaMapper final : public DeviceMapper {
 public:
  absl::StatusOr<std::unique_ptr<MappedDeviceMemory>> Map(
      const DeviceMemoryHandle& handle) override {
    kernels::cuda::IpcHandle ipc;
    static_assert(sizeof(ipc.memory) == sizeof(handle.ipc) &&
                  sizeof(ipc.device) == sizeof(handle.device_uuid));
    std::memcpy(&ipc.memory, handle.ipc.data(), sizeof(ipc.memory));
    std::memcpy(&ipc.device, handle.device_uuid.data(), sizeof(ipc.device));
    ipc.bytes = handle.bytes;
    ipc.exporter_pid = handle.exporter_pid;
    ipc.exporter_start = handle.exporter_start;
    auto pool = kernels::cuda::ImportedPool::Open(ipc);
    if (!pool.ok()) return ToAbsl(pool.status());
    return std::unique_ptr<MappedDeviceMemory>(new Mapped(*std::move(pool)));
  }

  absl::StatusOr<std::unique_ptr<PinnedHostMemory>> Pin(
      std::span<std::byte> memory) override {
    auto region = kernels::cuda::PinnedRegion::Make(
        memory.data(), memory.size(), "memory for rows of a device");
    if (!region.ok()) return ToAbsl(region.status());
    return std::unique_ptr<PinnedHostMemory>(new Pinned(*std::move(region)));
  }
};

}  // namespace

std::unique_ptr<DeviceMapper> MakeDeviceMapper() {
  return std::make_unique<CudaMapper>();
}

}  // namespace holdfast::cachesvc
