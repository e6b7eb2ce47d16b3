// Which backend the engine computes with.
#ifndef HOLDFAST_ENGINE_BACKEND_CHOOSE_BACKEND_H_
#define HOLDFAST_ENGINE_BACKEND_CHOOSE_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/backend/cuda_device.h"
#include "engine/config.h"
#include "kernels/backend.h"

namespace holdfast::engine {

// One of the two is set.
struct ChosenBackend {
  kernels::Backend& backend() {
    return device != nullptr ? device->backend() : *host;
  }

  std::unique_ptr<kernels::Backend> host = nullptr;
  std::unique_ptr<CudaDevice> device = nullptr;
  std::string reason;  // why this one, for the log
};

// --backend: `host` and `cuda` are taken at their word, and an error says why
// one cannot serve; `auto` takes a CUDA device where there is one, else the
// host, and says why.
absl::StatusOr<ChosenBackend> ChooseBackend(const Config& config);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_BACKEND_CHOOSE_BACKEND_H_
