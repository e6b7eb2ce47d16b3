#include "engine/backend/choose_backend.h"

#include <utility>

#include "engine/model_status.h"
#include "fmt/format.h"
#include "kernels/host/host_backend.h"

namespace holdfast::engine {
namespace {

absl::StatusOr<ChosenBackend> Host(const Config& config, std::string reason) {
  auto backend = kernels::MakeHostBackend(
      {.threads = config.threads, .exactness = config.exactness_level()});
  if (!backend.ok()) return ToAbslStatus(backend.status());
  return ChosenBackend{.host = *std::move(backend),
                       .reason = std::move(reason)};
}

}  // namespace

absl::StatusOr<ChosenBackend> ChooseBackend(const Config& config) {
  if (config.backend == "host") return Host(config, "--backend host");
  auto device = OpenCudaDevice();
  if (device.ok()) {
    return ChosenBackend{.device = *std::move(device),
                         .reason = config.backend == "cuda"
                                       ? "--backend cuda"
                                       : "there is a CUDA device"};
  }
  const std::string why(device.status().message());
  if (config.backend == "cuda") {
    return absl::Status(device.status().code(),
                        fmt::format("--backend cuda: {}", why));
  }
  return Host(config, fmt::format("no CUDA device: {}", why));
}

}  // namespace holdfast::engine
