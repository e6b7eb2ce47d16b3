#include "tests/bench/model_runner.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>

#include "engine/model/loader.h"
#include "engine/model_status.h"
#include "engine/pool/block_table.h"
#include "kernels/host/host_backend.h"

namespace holdfast::bench {

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Make(
    const std::string& file, int threads, int tokens) {
  auto runner = std::make_unique<ModelRunner>();
  auto backend = kernels::MakeHostBackend({.threads = threads});
  if (!backend.ok()) return engine::ToAbslStatus(backend.status());
  runner->backend_ = *std::move(backend);
  runner->timed_ = std::make_unique<TimedBackend>(runner->backend_.get());
  auto loaded =
      model::LoadModel(file, *runner->timed_, {.max_rows = kStepRows});
  if (!loaded.ok()) return engine::ToAbslStatus(loaded.status());
  runner->model_ = std::move(loaded->model);
  if (const auto status = runner->MakeMemory(tokens); !status.ok()) {
    return engine::ToAbslStatus(status);
  }
  return runner;
}

absl::StatusOr<double> ModelRunner::Forward(int position, int count, int step) {
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
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

absl::StatusOr<ModelSpeed> ModelRunner::Measure(const char* test, int position,
                                                int count, int step) {
  const auto seconds = Forward(position, count, step);
  if (!seconds.ok()) return seconds.status();
  ModelSpeed speed = {test, count, position, count / *seconds, {}};
  for (const auto& [name, operation] : timed_->operations()) {
    speed.operations.push_back(
        {name, operation.calls, operation.seconds, operation.bytes});
  }
  std::sort(speed.operations.begin(), speed.operations.end(),
            [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return speed;
}

void ModelRunner::SaveSections() {
  saved_.assign(sections_.data(), sections_.data() + sections_.bytes());
}

void ModelRunner::RestoreSections() {
  std::memcpy(sections_.data(), saved_.data(), saved_.size());
}

kernels::Status ModelRunner::MakeMemory(int tokens) {
  const CacheLayout& layout = model_->layout();
  const int blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  HF_ASSIGN_OR_RETURN(
      pool_, kernels::HostMemory::Make(layout.BlockBytes() * blocks, "pool"));
  // As an engine's pool after its first conversations: what an operation takes
  // is not the system's time for new pages.
  std::fill_n(pool_.data(), pool_.bytes(), std::byte{0});
  for (int i = 0; i < blocks; ++i) {
    table_.push_back(pool_.data() + layout.BlockBytes() * i);
  }
  HF_ASSIGN_OR_RETURN(
      sections_, kernels::HostMemory::Make(
                     model::ComputeSectionOffsets(layout).bytes, "sections"));
  logits_.resize(model_->info().vocab_size);
  return kernels::OkStatus();
}

}  // namespace holdfast::bench
