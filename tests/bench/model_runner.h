// A model file and one sequence in memory of its own, to be forwarded and
// timed.
#ifndef HOLDFAST_TESTS_BENCH_MODEL_RUNNER_H_
#define HOLDFAST_TESTS_BENCH_MODEL_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "kernels/host/memory.h"
#include "kernels/status.h"
#include "tests/bench/model_bench.h"
#include "tests/bench/timed_backend.h"

namespace holdfast::bench {

// Rows of the engine's longest step.
inline constexpr int kStepRows = 512;

class ModelRunner {
 public:
  // `tokens` is as far as the sequence may grow.
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Make(
      const std::string& file, int threads, int tokens);

  const model::Model& model() const { return *model_; }
  const kernels::BackendInfo& backend() const { return backend_->info(); }

  // Forwards `count` tokens from `position` on, `step` at a time; logits for
  // the last of each step. Returns the seconds.
  absl::StatusOr<double> Forward(int position, int count, int step);

  // Forward as a test's measurement.
  absl::StatusOr<ModelSpeed> Measure(const char* test, int position, int count,
                                     int step);

  // Recurrent state, to start more than once from one position.
  void SaveSections();
  void RestoreSections();

 private:
  kernels::Status MakeMemory(int tokens);

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<TimedBackend> timed_;
  std::unique_ptr<model::Model> model_;
  kernels::HostMemory pool_;
  kernels::HostMemory sections_;
  std::vector<std::byte*> table_;
  std::vector<std::byte> saved_;
  std::vector<float> logits_;
};

}  // namespace holdfast::bench

#endif  // HOLDFAST_TESTS_BENCH_MODEL_RUNNER_H_
