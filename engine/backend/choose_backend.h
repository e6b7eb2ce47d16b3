// Which backend the engine computes with, and what `--probe` prints.
#ifndef HOLDFAST_ENGINE_BACKEND_CHOOSE_BACKEND_H_
#define HOLDFAST_ENGINE_BACKEND_CHOOSE_BACKEND_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/config.h"
#include "kernels/backend.h"

namespace holdfast::engine {

struct ChosenBackend {
  std::unique_ptr<kernels::Backend> backend;
  std::string reason;  // why this one, for the log
};

// --backend: `host` and `cuda` are taken at their word, and an error says why
// one cannot serve; `auto` takes a CUDA device where the engine can serve from
// it, else the host, and says why.
absl::StatusOr<ChosenBackend> ChooseBackend(const Config& config);

// The device's facts as JSON; `program`: this one's path, for the probe's
// second process.
std::string ProbeJson(const std::string& program);

// The exit status of the probe's second process; none: the arguments do not
// ask for one.
std::optional<int> RunProbePeer(int argc, char** argv);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_BACKEND_CHOOSE_BACKEND_H_
