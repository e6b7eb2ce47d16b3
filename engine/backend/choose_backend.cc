#include "engine/backend/choose_backend.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "engine/model_status.h"
#include "fmt/format.h"
#include "kernels/host/host_backend.h"
#ifdef HOLDFAST_HAVE_CUDA
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/ipc/arena_probe.h"
#include "kernels/cuda/ipc/device_facts.h"
#endif

namespace holdfast::engine {
namespace {

// Of a CUDA device that is there.
constexpr char kNotServed[] =
    "the engine keeps rows and recurrent state in host memory";

#ifdef HOLDFAST_HAVE_CUDA
absl::StatusOr<std::unique_ptr<kernels::Backend>> Cuda() {
  auto backend = kernels::MakeCudaBackend({});
  if (!backend.ok()) return ToAbslStatus(backend.status());
  return std::unique_ptr<kernels::Backend>(*std::move(backend));
}
#else
absl::StatusOr<std::unique_ptr<kernels::Backend>> Cuda() {
  return absl::UnimplementedError("this build has no CUDA backend");
}
#endif

absl::Status NotServed(const kernels::BackendInfo& info) {
  return absl::UnimplementedError(fmt::format(
      "backend {} ({}) cannot serve: {}", info.name, info.target, kNotServed));
}

absl::StatusOr<ChosenBackend> Host(const Config& config, std::string reason) {
  auto backend = kernels::MakeHostBackend(
      {.threads = config.threads, .exactness = config.exactness_level()});
  if (!backend.ok()) return ToAbslStatus(backend.status());
  return ChosenBackend{*std::move(backend), std::move(reason)};
}

}  // namespace

absl::StatusOr<ChosenBackend> ChooseBackend(const Config& config) {
  if (config.backend == "host") return Host(config, "--backend host");
  auto cuda = Cuda();
  const absl::Status refused =
      cuda.ok() ? NotServed((*cuda)->info()) : cuda.status();
  if (config.backend == "cuda") {
    return absl::Status(
        refused.code(),
        fmt::format("--backend cuda: {}", std::string(refused.message())));
  }
  return Host(config, fmt::format("no CUDA device that can serve: {}",
                                  std::string(refused.message())));
}

#ifdef HOLDFAST_HAVE_CUDA
std::string ProbeJson(const std::string& program) {
  return kernels::cuda::DeviceFactsJson(program);
}

std::optional<int> RunProbePeer(int argc, char** argv) {
  const std::string flag = std::string(kernels::cuda::kIpcPeerFlag) + "=";
  if (argc != 2 || !std::string_view(argv[1]).starts_with(flag)) {
    return std::nullopt;
  }
  return kernels::cuda::RunIpcPeer(std::atoi(argv[1] + flag.size()));
}
#else
std::string ProbeJson(const std::string&) {
  return "{\n  \"device\": null,\n  \"reason\": \"this build has no CUDA "
         "backend\"\n}\n";
}

std::optional<int> RunProbePeer(int, char**) { return std::nullopt; }
#endif

}  // namespace holdfast::engine
