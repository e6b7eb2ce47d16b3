#include "tests/bench/model_bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "engine/model/loader.h"
#include "engine/model_status.h"
#include "engine/pool/block_table.h"
#include "kernels/host/host_backend.h"
#include "kernels/host/memory.h"
#include "tests/bench/timed_backend.h"

namespace holdfast::bench {
namespace {

// Rows of the engine's longest step.
constexpr int kStepRows = 512;
constexpr int kWarmUpTokens = 64;

// One sequence in memory of its own.
class Runner {
 public:
  static absl::StatusOr<std::unique_ptr<Runner>> Make(
      const ModelBenchOptions& options, int tokens) {
    auto runner = std::make_unique<Runner>();
    auto backend = kernels::MakeHostBackend({.threads = options.threads});
    if (!backend.ok()) return engine::ToAbslStatus(backend.status());
    runner->backend_ = *std::move(backend);
    runner->timed_ = std::make_unique<TimedBackend>(runner->backend_.get());
    auto loaded = model::LoadModel(options.file, *runner->timed_,
                                   {.max_rows = kStepRows});
    if (!loaded.ok()) return engine::ToAbslStatus(loaded.status());
    runner->model_ = std::move(loaded->model);
    if (const auto status = runner->MakeMemory(tokens); !status.ok()) {
      return engine::ToAbslStatus(status);
    }
    return runner;
  }

  const model::Model& model() const { return *model_; }
  const kernels::BackendInfo& backend() const { return backend_->info(); }

  // Forwards `count` tokens from `position` on, `step` at a time; logits for
  // the last of each step. Returns the seconds.
  absl::StatusOr<double> Forward(int position, int count, int step) {
    timed_->Reset();
    const auto start = std::chrono::steady_clock::now();
    for (const int end = position + count; position < end; position += step) {
      std::vector<std::int32_t> ids(std::min(step, end - position));
      for (std::size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<std::int32_t>((position + i) * 97 %
                                           model_->info().vocab_size);
      }
      const model::SequenceRows rows = {.ids = ids,
                                        .position = position,
                                        .blocks = table_.data(),
                                        .sections = sections_.data(),
                                        .last_logits = logits_,
                                        .all_logits = {}};
      const auto status = model_->Forward({&rows, 1});
      if (!status.ok()) return engine::ToAbslStatus(status);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
  }

  // Forward as a test's measurement.
  absl::StatusOr<ModelSpeed> Measure(const char* test, int position, int count,
                                     int step) {
    const auto seconds = Forward(position, count, step);
    if (!seconds.ok()) return seconds.status();
    ModelSpeed speed = {test, count, position, count / *seconds, {}};
    for (const auto& [name, operation] : timed_->operations()) {
      speed.operations.push_back({name, operation.calls, operation.seconds});
    }
    std::sort(
        speed.operations.begin(), speed.operations.end(),
        [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    return speed;
  }

  // Recurrent state, to start more than once from one position.
  void SaveSections() {
    saved_.assign(sections_.data(), sections_.data() + sections_.bytes());
  }
  void RestoreSections() {
    std::memcpy(sections_.data(), saved_.data(), saved_.size());
  }

 private:
  kernels::Status MakeMemory(int tokens) {
    const CacheLayout& layout = model_->layout();
    const int blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
    HF_ASSIGN_OR_RETURN(
        pool_, kernels::HostMemory::Make(layout.BlockBytes() * blocks, "pool"));
    for (int i = 0; i < blocks; ++i) {
      table_.push_back(pool_.data() + layout.BlockBytes() * i);
    }
    HF_ASSIGN_OR_RETURN(
        sections_, kernels::HostMemory::Make(
                       model::ComputeSectionOffsets(layout).bytes, "sections"));
    logits_.resize(model_->info().vocab_size);
    return kernels::OkStatus();
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<TimedBackend> timed_;
  std::unique_ptr<model::Model> model_;
  kernels::HostMemory pool_;
  kernels::HostMemory sections_;
  std::vector<std::byte*> table_;
  std::vector<std::byte> saved_;
  std::vector<float> logits_;
};

}  // namespace

absl::StatusOr<ModelBench> RunModelBench(const ModelBenchOptions& options) {
  std::vector<int> depths = options.depths;
  std::sort(depths.begin(), depths.end());
  const int deepest = depths.empty() ? 0 : depths.back();
  auto runner = Runner::Make(
      options, deepest + std::max(options.prompt, options.generate));
  if (!runner.ok()) return runner.status();
  const auto warm =
      (*runner)->Forward(0, std::min(kWarmUpTokens, options.prompt), kStepRows);
  if (!warm.ok()) return warm.status();

  ModelBench result;
  result.model = (*runner)->model().info().name;
  result.backend =
      (*runner)->backend().name + " " + (*runner)->backend().target;
  int filled = 0;
  for (const int depth : depths) {
    const auto fill = (*runner)->Forward(filled, depth - filled, kStepRows);
    if (!fill.ok()) return fill.status();
    filled = depth;
    (*runner)->SaveSections();
    auto prefill =
        (*runner)->Measure("prefill", depth, options.prompt, kStepRows);
    if (!prefill.ok()) return prefill.status();
    (*runner)->RestoreSections();
    auto decode = (*runner)->Measure("decode", depth, options.generate, 1);
    if (!decode.ok()) return decode.status();
    (*runner)->RestoreSections();
    result.speeds.push_back(*std::move(prefill));
    result.speeds.push_back(*std::move(decode));
  }
  return result;
}

}  // namespace holdfast::bench
