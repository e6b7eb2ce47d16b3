// A build without the CUDA backend.
#include "engine/backend/cuda_device.h"

namespace holdfast::engine {
namespace {

constexpr char kReason[] = "this build has no CUDA backend";

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> OpenCudaDevice() {
  return absl::UnimplementedError(kReason);
}

std::string CudaFactsJson(const std::string&) {
  return std::string("{\n  \"device\": null,\n  \"reason\": \"") + kReason +
         "\"\n}\n";
}

std::optional<int> RunCudaPeer(int, char**) { return std::nullopt; }

}  // namespace holdfast::engine
