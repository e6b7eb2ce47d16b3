#include "engine/startup.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "engine/anchors/anchor_slots.h"
#include "engine/backend/choose_backend.h"
#include "engine/fingerprint.h"
#include "engine/model/loader.h"
#include "engine/model_status.h"
#include "engine/pool/free_memory.h"
#include "engine/pool/pool_size.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace holdfast::engine {
namespace {

// Rows of the longest step: work space of the forward pass.
constexpr int kMaxStepRows = 512;
// On a grid backend, where a step is a whole chunk.
constexpr int kChunkRows = 1024;

int StepRows(const kernels::BackendInfo& backend) {
  return backend.exactness == kernels::Exactness::kRowInvariant ? kMaxStepRows
                                                                : kChunkRows;
}

v1::CacheServiceLink::State ToProto(attach::AttachLink::State state) {
  switch (state) {
    case attach::AttachLink::State::kOff:
      return v1::CacheServiceLink::OFF;
    case attach::AttachLink::State::kAttached:
      return v1::CacheServiceLink::ATTACHED;
    case attach::AttachLink::State::kDetached:
      return v1::CacheServiceLink::DETACHED;
    case attach::AttachLink::State::kRefused:
      return v1::CacheServiceLink::REFUSED;
  }
  return v1::CacheServiceLink::STATE_UNSPECIFIED;
}

MemoryLimits Memory(const Config& config) {
  MemoryLimits limits{.keep_free_bytes = config.keep_free_bytes(),
                      .available = AvailableMemoryBytes};
  if (config.cache_budget_gb) {
    limits.cache_budget_bytes = static_cast<std::uint64_t>(
        *config.cache_budget_gb * (std::uint64_t{1} << 30));
  }
  return limits;
}

void LogLines(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) spdlog::info("{}", line);
}

}  // namespace

v1::EngineStatus ProcessStatus(const Config& config) {
  v1::EngineStatus status;
  status.set_model_path(config.model);
  status.set_debug(config.debug);
  status.set_seats(config.parallel);
  status.set_max_queue(config.max_queue);
  status.set_pid(static_cast<std::uint32_t>(getpid()));
  status.set_created_unix_s(
      std::chrono::duration_cast<std::chrono::seconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count());
  return status;
}

absl::StatusOr<std::unique_ptr<LoadedEngine>> LoadedEngine::Load(
    const Config& config) {
  std::unique_ptr<LoadedEngine> engine(new LoadedEngine);
  absl::Status status = engine->LoadModel(config);
  if (status.ok()) status = engine->MakePool(config);
  if (status.ok()) status = engine->StartThreads(config);
  if (!status.ok()) return status;
  return engine;
}

absl::Status LoadedEngine::LoadModel(const Config& config) {
  const auto start = std::chrono::steady_clock::now();
  auto chosen = ChooseBackend(config);
  if (!chosen.ok()) return chosen.status();
  spdlog::info("backend name={} target={} reason=\"{}\"",
               chosen->backend->info().name, chosen->backend->info().target,
               chosen->reason);
  backend_ = std::move(chosen->backend);
  const kernels::BackendInfo& machine = backend_->info();
  SelfTests self_tests;
  const auto kernels_test = SelfTestKernels(*backend_);
  if (!kernels_test.ok()) return kernels_test.status();
  self_tests.kernels = *kernels_test;
  auto loaded = model::LoadModel(config.model, *backend_,
                                 {.state_type = config.state_type(),
                                  .max_rows = StepRows(machine),
                                  .max_context = config.max_context});
  if (!loaded.ok()) return ToAbslStatus(loaded.status());
  model_ = std::move(loaded->model);
  tokenizer_ = std::move(loaded->tokenizer);
  if (machine.exactness == kernels::Exactness::kGrid &&
      model_->layout().grid_tokens > kChunkRows) {
    return absl::UnimplementedError(
        fmt::format("a grid of {} tokens: steps have at most {} rows",
                    model_->layout().grid_tokens, kChunkRows));
  }
  const auto model_test = SelfTestModel(*model_, *backend_);
  if (!model_test.ok()) return model_test.status();
  self_tests.model = *model_test;
  const auto fingerprint =
      ComputeFingerprint(loaded->files, *model_, machine, self_tests);
  if (!fingerprint.ok()) return fingerprint.status();
  fingerprint_ = *fingerprint;
  const model::ModelInfo& info = model_->info();
  spdlog::info(
      "model loaded name={} architecture={} layers={} hidden={} vocabulary={} "
      "weights_bytes={} backend={} target={} exactness={} threads={} "
      "revision={} "
      "self_test={} fingerprint={} seconds={:.2f}",
      info.name, info.architecture, info.layers, info.hidden, info.vocab_size,
      info.weight_bytes, machine.name, machine.target,
      ExactnessName(machine.exactness), machine.threads,
      machine.arithmetic_revision, ToHex(self_tests.kernels),
      ToHex(fingerprint_),
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count());
  return absl::OkStatus();
}

absl::Status LoadedEngine::MakePool(const Config& config) {
  const CacheLayout& layout = model_->layout();
  const std::size_t section_bytes = model::ComputeSectionOffsets(layout).bytes;
  anchor_slots_ = AnchorSlotsFor(config.resident_bytes(), section_bytes);
  const std::uint64_t anchor_bytes = section_bytes * anchor_slots_;
  const std::uint64_t available = AvailableMemoryBytes();
  const RetentionBudgets budgets = config.retention();
  const auto plan = PlanPool(
      layout,
      {.tokens = config.pool_tokens,
       .gigabytes = config.pool_gb,
       .model_context = model_->info().max_context,
       .wanted_context = config.max_context,
       .seats = config.parallel,
       .pin_bytes = budgets.pin_bytes,
       .park_bytes = budgets.park_bytes,
       .stash_bytes = budgets.stash_bytes,
       .available_bytes = available - std::min(available, anchor_bytes)});
  if (!plan.ok()) return plan.status();
  max_context_ = plan->max_context;
  blocks_ = plan->blocks;
  // The lease table lies behind the blocks.
  auto arena =
      MemfdArena::Create("holdfast-pool", plan->bytes() + kLeaseTableBytes,
                         ArenaWriters::kCreatorOnly);
  if (!arena.ok()) return arena.status();
  arena_ = std::make_unique<MemfdArena>(*std::move(arena));
  LogLines(DescribePool(*plan, layout));
  LogLines(DescribeAnchors(anchor_slots_, section_bytes, layout.Recurrent()));
  return absl::OkStatus();
}

absl::Status LoadedEngine::StartAttach(const Config& config) {
  attach::AttachClientOptions options;
  options.run_dir = config.run_dir;
  options.pool = arena_.get();
  options.fingerprint = fingerprint_;
  options.model_name = model_->info().name;
  options.layout = model_->layout();
  options.block_count = static_cast<std::uint64_t>(blocks_);
  options.lease_table_offset = arena_->bytes() - kLeaseTableBytes;
  options.lease_slots = kLeaseSlots;
  auto client = attach::AttachClient::Start(std::move(options));
  if (!client.ok()) return client.status();
  attach_ = *std::move(client);
  tiers_ = std::make_unique<RemoteTiers>(*attach_);
  costs_ = MakeMeasuredCosts();
  if (config.planner_costs.empty()) return absl::OkStatus();
  auto costs = ParsePlannerCosts(config.planner_costs);
  if (!costs.ok()) return costs.status();
  costs_ = *std::move(costs);
  return absl::OkStatus();
}

absl::Status LoadedEngine::StartThreads(const Config& config) {
  if (!config.no_cache_service) {
    if (auto s = StartAttach(config); !s.ok()) return s;
  }
  auto state = std::make_unique<EngineState>(
      *model_, *backend_, arena_->data(), blocks_, tokenizer_,
      EngineState::Options{
          .fingerprint = fingerprint_,
          .eos_ids = {tokenizer_.eos_ids.begin(), tokenizer_.eos_ids.end()},
          .max_context = max_context_,
          .max_rows = StepRows(backend_->info()),
          .anchor_bytes = config.resident_bytes(),
          .seats = config.parallel,
          .retention = config.retention(),
          .memory = Memory(config)});
  if (tiers_ != nullptr) {
    state->tiering = std::make_unique<Tiering>(
        *tiers_, *costs_, arena_->data() + arena_->bytes() - kLeaseTableBytes,
        state->pool);
  }
  scheduler_ = std::make_unique<Scheduler>(
      std::move(state),
      Scheduler::Options{.max_queue = config.max_queue, .debug = config.debug});
  return absl::OkStatus();
}

EngineService::Serving LoadedEngine::Serving(const v1::EngineStatus& base) {
  const model::ModelInfo& info = model_->info();
  v1::EngineStatus status = base;
  status.set_model_name(info.name);
  status.set_architecture(info.architecture);
  status.set_fingerprint(fingerprint_.data(), fingerprint_.size());
  status.set_backend(
      fmt::format("{} ({})", backend_->info().name, backend_->info().target));
  status.set_exactness(ExactnessName(backend_->info().exactness));
  status.set_max_context_tokens(max_context_);
  status.set_vocab_size(info.vocab_size);
  status.mutable_eos_ids()->Add(tokenizer_.eos_ids.begin(),
                                tokenizer_.eos_ids.end());
  status.set_grid_tokens(model_->layout().grid_tokens);
  status.set_pool_bytes(arena_->bytes() - kLeaseTableBytes);
  status.set_pool_blocks(blocks_);
  status.set_row_bytes(model_->layout().RowBytes());
  status.set_section_bytes(
      model::ComputeSectionOffsets(model_->layout()).bytes);
  status.set_anchor_slots(anchor_slots_);
  return {.scheduler = scheduler_.get(),
          .status = status,
          .tokenizer = std::move(tokenizer_),
          .cache_link = [this] {
            v1::CacheServiceLink link;
            if (attach_ == nullptr) {
              link.set_state(v1::CacheServiceLink::OFF);
              return link;
            }
            const attach::AttachLink now = attach_->link();
            link.set_state(ToProto(now.state));
            link.set_detail(now.detail);
            link.set_attaches_total(now.attaches);
            return link;
          }};
}

}  // namespace holdfast::engine
