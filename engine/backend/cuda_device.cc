#include "engine/backend/cuda_device.h"

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/model_status.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/ipc/arena_probe.h"
#include "kernels/cuda/ipc/device_facts.h"
#include "kernels/cuda/ipc/ipc_memory.h"

namespace holdfast::engine {
namespace {

class Region final : public PinnedHostMemory {
 public:
  explicit Region(kernels::cuda::PinnedRegion region)
      : region_(std::move(region)) {}

 private:
  kernels::cuda::PinnedRegion region_;
};

class Device final : public CudaDevice {
 public:
  explicit Device(std::unique_ptr<kernels::CudaBackend> backend)
      : backend_(std::move(backend)) {}

  kernels::Backend& backend() override { return *backend_; }

  absl::StatusOr<DeviceBudget> Budget() override {
    auto budget = kernels::cuda::DeviceBudget();
    if (!budget.ok()) return ToAbslStatus(budget.status());
    return DeviceBudget{budget->bytes, std::move(budget->how)};
  }

  DeviceArena ProbeArena(const std::string& program,
                         std::chrono::milliseconds deadline) override {
    auto choice = kernels::cuda::ChooseArena(program, deadline);
    return {choice.kind == kernels::cuda::ArenaKind::kCudaIpc,
            std::move(choice.reason)};
  }

  absl::StatusOr<DeviceMemoryHandle> Export(
      const kernels::Buffer& memory) override {
    const auto handle =
        kernels::cuda::ExportMemory(memory.data(), memory.bytes());
    if (!handle.ok()) return ToAbslStatus(handle.status());
    DeviceMemoryHandle out;
    static_assert(sizeof(out.ipc) == sizeof(handle->memory) &&
                  sizeof(out.device_uuid) == sizeof(handle->device));
    std::memcpy(out.ipc.data(), &handle->memory, sizeof(out.ipc));
    std::memcpy(out.device_uuid.data(), &handle->device,
                sizeof(out.device_uuid));
    out.bytes = handle->bytes;
    out.exporter_pid = handle->exporter_pid;
    out.exporter_start = handle->exporter_start;
    return out;
  }

  absl::StatusOr<std::unique_ptr<PinnedHostMemory>> Pin(
      std::byte* memory, std::uint64_t bytes) override {
    auto region = kernels::cuda::PinnedRegion::Make(
        memory, bytes, "memory shared with the cache service");
    if (!region.ok()) return ToAbslStatus(region.status());
    return std::unique_ptr<PinnedHostMemory>(new Region(*std::move(region)));
  }

  std::vector<DeviceMemoryUse> Memory() override {
    std::vector<DeviceMemoryUse> uses;
    for (kernels::MemoryUse& use : backend_->memory()) {
      uses.push_back({std::move(use.what), use.bytes});
    }
    return uses;
  }

 private:
  const std::unique_ptr<kernels::CudaBackend> backend_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> OpenCudaDevice() {
  auto backend = kernels::MakeCudaBackend({});
  if (!backend.ok()) return ToAbslStatus(backend.status());
  return std::unique_ptr<CudaDevice>(new Device(*std::move(backend)));
}

std::string CudaFactsJson(const std::string& program) {
  return kernels::cuda::DeviceFactsJson(program);
}

std::optional<int> RunCudaPeer(int argc, char** argv) {
  const std::string flag = std::string(kernels::cuda::kIpcPeerFlag) + "=";
  if (argc != 2 || !std::string_view(argv[1]).starts_with(flag)) {
    return std::nullopt;
  }
  return kernels::cuda::RunIpcPeer(std::atoi(argv[1] + flag.size()));
}

}  // namespace holdfast::engine
