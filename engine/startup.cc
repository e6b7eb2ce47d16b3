#include "engine/startup.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include "engine/anchors/anchor_slots.h"
#include "engine/backend/offered_pool.h"
#include "engine/cache/first_costs.h"
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
// Sections of the resident, of a running request and of one that begins.
constexpr int kStatesASeat = 3;
// On a grid backend, where a step is a whole chunk.
constexpr int kChunkRows = 1024;

int StepRows(const Config& config, const kernels::BackendInfo& backend) {
  if (backend.exactness == kernels::Exactness::kRowInvariant) {
    return kMaxStepRows;
  }
  return config.prefix_chunk > 0 ? config.prefix_chunk : kChunkRows;
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

// On a device a block takes no memory that was not taken at the start.
MemoryLimits Memory(const Config& config, bool on_device) {
  MemoryLimits limits;
  limits.keep_free_bytes = config.keep_free_bytes();
  if (!on_device) limits.available = AvailableMemoryBytes;
  if (config.cache_budget_gb) {
    limits.cache_budget_bytes = static_cast<std::uint64_t>(
        *config.cache_budget_gb * (std::uint64_t{1} << 30));
  }
  return limits;
}

// Of a file, or of a folder's weights. They stay in their storage format on a
// device, so they take about as much there. 0: the loader says what is wrong.
std::uint64_t WeightFileBytes(const std::string& model) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::uint64_t bytes = 0;
  const auto add = [&bytes](const fs::path& file) {
    std::error_code none;
    const std::uintmax_t size = fs::file_size(file, none);
    if (!none) bytes += size;
  };
  if (!fs::is_directory(model, error)) {
    add(model);
    return bytes;
  }
  for (const auto& entry : fs::directory_iterator(model, error)) {
    if (entry.path().extension() == ".safetensors") add(entry.path());
  }
  return bytes;
}

// Where the size was asked for, it is what has to be another one.
absl::Status OfPool(const Config& config, std::uint64_t bytes,
                    const absl::Status& status) {
  if (!config.pool_gb && !config.pool_tokens) return status;
  return absl::OutOfRangeError(
      fmt::format("{}: a pool of {} MiB: {}",
                  config.pool_gb ? "--pool-gb" : "--pool-tokens", bytes >> 20,
                  std::string(status.message())));
}

// The loader knows no flags: these are what it was given.
absl::Status OfLoader(const Config& config, const absl::Status& status) {
  std::string flags = "--model";
  if (config.max_context > 0)
    flags += fmt::format(" --max-context {}", config.max_context);
  if (config.prefix_chunk > 0)
    flags += fmt::format(" --prefix-chunk {}", config.prefix_chunk);
  return absl::Status(
      status.code(),
      fmt::format("{}: {}", flags, std::string(status.message())));
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
    const Config& config, ChosenBackend backend) {
  std::unique_ptr<LoadedEngine> engine(new LoadedEngine);
  engine->chosen_ = std::move(backend);
  absl::Status status = engine->LoadModel(config);
  if (status.ok()) status = engine->MakePool(config);
  if (status.ok()) status = engine->StartThreads(config);
  if (!status.ok()) return status;
  return engine;
}

absl::Status LoadedEngine::CheckWeightsFit(const Config& config) {
  if (chosen_.device == nullptr) return absl::OkStatus();
  const auto budget = chosen_.device->Budget();
  if (!budget.ok()) return budget.status();
  const std::uint64_t bytes = WeightFileBytes(config.model);
  if (bytes <= budget->bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("the weights of {} take {} MiB; the device has {} MiB ({})",
                  config.model, bytes >> 20, budget->bytes >> 20, budget->how));
}

absl::Status LoadedEngine::LoadModel(const Config& config) {
  const auto start = std::chrono::steady_clock::now();
  if (auto s = CheckWeightsFit(config); !s.ok()) return s;
  kernels::Backend& backend = chosen_.backend();
  const kernels::BackendInfo& machine = backend.info();
  spdlog::info("backend name={} target={} reason=\"{}\"", machine.name,
               machine.target, chosen_.reason);
  SelfTests self_tests;
  const auto kernels_test = SelfTestKernels(backend);
  if (!kernels_test.ok()) return kernels_test.status();
  self_tests.kernels = *kernels_test;
  auto loaded = model::LoadModel(config.model, backend,
                                 {.state_type = config.state_type(),
                                  .max_rows = StepRows(config, machine),
                                  .max_context = config.max_context,
                                  .grid_tokens = config.prefix_chunk});
  if (!loaded.ok()) return OfLoader(config, ToAbslStatus(loaded.status()));
  model_ = std::move(loaded->model);
  tokenizer_ = std::move(loaded->tokenizer);
  served_name_ =
      config.model_name.empty() ? model_->info().name : config.model_name;
  if (machine.exactness == kernels::Exactness::kGrid &&
      static_cast<int>(model_->layout().grid_tokens) >
          StepRows(config, machine)) {
    return absl::UnimplementedError(
        fmt::format("a grid of {} tokens: steps have at most {} rows",
                    model_->layout().grid_tokens, StepRows(config, machine)));
  }
  const auto model_test = SelfTestModel(*model_, backend);
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
  DeviceMemoryPlan memory;
  memory.weight_bytes = model_->info().weight_bytes;
  memory.states = anchor_slots_;
  memory.budget.bytes = AvailableMemoryBytes();
  if (chosen_.device != nullptr) {
    auto budget = chosen_.device->Budget();
    if (!budget.ok()) return budget.status();
    memory.budget = *std::move(budget);
    memory.states += kStatesASeat * config.parallel;
    if (!config.no_cache_service) {
      memory.staging_bytes =
          config.staging_bytes() / layout.BlockBytes() * layout.BlockBytes();
    }
  }
  memory.state_bytes = section_bytes * memory.states;
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
       .available_bytes = memory.budget.bytes -
                          std::min(memory.budget.bytes, memory.wanted())});
  if (!plan.ok()) return plan.status();
  max_context_ = plan->max_context;
  blocks_ = plan->blocks;
  if (chosen_.device != nullptr) {
    if (auto s = MakeDevicePool(config, *plan, std::move(memory)); !s.ok()) {
      return s;
    }
  } else {
    auto pool = PoolMemory::OnHost(plan->blocks, plan->block_bytes);
    if (!pool.ok()) {
      return OfPool(config, plan->blocks * plan->block_bytes, pool.status());
    }
    pool_memory_ = *std::move(pool);
  }
  LogLines(DescribePool(*plan, layout));
  LogLines(DescribeAnchors(anchor_slots_, section_bytes, layout.Recurrent()));
  return absl::OkStatus();
}

absl::Status LoadedEngine::MakeDevicePool(const Config& config,
                                          const PoolPlan& plan,
                                          DeviceMemoryPlan memory) {
  CudaDevice& device = *chosen_.device;
  memory.pool_bytes = plan.bytes();
  memory.workspace = device.Memory();
  if (memory.wanted() > memory.budget.bytes) {
    return absl::ResourceExhaustedError(fmt::format(
        "pool, states and staging take {} MiB, the device has {} MiB left "
        "({}): "
        "choose another --pool-tokens, --pool-gb, --resident-gb or "
        "--staging-gb",
        memory.wanted() >> 20, memory.budget.bytes >> 20, memory.budget.how));
  }
  auto pool = PoolMemory::OnDevice(
      device.backend(), plan.blocks, plan.block_bytes,
      static_cast<int>(memory.staging_bytes / plan.block_bytes));
  if (!pool.ok()) return pool.status();
  pool_memory_ = *std::move(pool);
  spdlog::info(
      "sampling on=device limits=\"on the host, from logits copied back: "
      "requests with penalties or logit_bias, prompts cached whole, "
      "top_k above 256, draws beyond the 256 largest logits\"");
  if (config.no_cache_service) {
    spdlog::info("arena kind=none reason=\"--no-cache-service\"");
  } else if (pool_memory_->arena() == nullptr) {
    spdlog::info(
        "arena kind=none reason=\"--staging-gb has no room for a "
        "block\"");
  } else {
    OfferedPool offered =
        OfferPool(device, *pool_memory_, plan.block_bytes, "/proc/self/exe");
    spdlog::info("arena kind={} reason=\"{}\"",
                 offered.pool ? "cuda_ipc" : "pinned", offered.reason);
    device_pool_ = std::move(offered.pool);
    // With cuda_ipc too: for states, and for a cache service that refuses it.
    auto pinned = device.Pin(pool_memory_->arena()->data(),
                             pool_memory_->arena()->bytes());
    memory.staging_pinned =
        pinned.ok() ? "pinned"
                    : "not pinned: " + std::string(pinned.status().message());
    if (pinned.ok()) pinned_ = *std::move(pinned);
  }
  LogLines(DescribeDeviceMemory(memory));
  return absl::OkStatus();
}

absl::Status LoadedEngine::StartAttach(const Config& config) {
  attach::AttachClientOptions options;
  options.run_dir = config.run_dir;
  options.pool = pool_memory_->arena();
  options.fingerprint = fingerprint_;
  options.model_name = served_name_;
  options.layout = model_->layout();
  options.block_count =
      static_cast<std::uint64_t>(pool_memory_->arena_blocks());
  options.lease_table_offset = pool_memory_->lease_table_offset();
  options.lease_slots = kLeaseSlots;
  options.device_pool = device_pool_;
  if (pool_memory_->on_device()) {
    options.device_pool_bytes = pool_memory_->bytes();
  }
  options.on_change = [bell = attached_](const attach::AttachLink&) {
    bell->Ring();
  };
  auto client = attach::AttachClient::Start(std::move(options));
  if (!client.ok()) return client.status();
  attach_ = *std::move(client);
  tiers_ = std::make_unique<RemoteTiers>(*attach_, config.lookup_deadline());
  return MakeCosts(config);
}

absl::Status LoadedEngine::MakeCosts(const Config& config) {
  if (!config.planner_costs.empty()) {
    auto costs = ParsePlannerCosts(config.planner_costs);
    if (!costs.ok()) return costs.status();
    costs_ = *std::move(costs);
    return absl::OkStatus();
  }
  // How the first try to attach ended, if it has.
  attached_->Wait(/*seen=*/0, deadlines::kAttachRetry);
  costs_ = FirstCosts(tiers_->Lookup({}).remembered, [&] {
    return MeasurePrefillRate(*model_, chosen_.backend(),
                              StepRows(config, chosen_.backend().info()));
  });
  return absl::OkStatus();
}

std::unique_ptr<Tiering> LoadedEngine::MakeTiering(BlockPool& pool) {
  std::byte* const memory = pool_memory_->arena()->data();
  auto lending =
      pool_memory_->on_device()
          ? std::make_unique<Lending>(
                pool, chosen_.backend(), memory, pool_memory_->arena_blocks(),
                [this] {
                  const auto session = attach_->session();
                  return session != nullptr && session->device_mapped;
                })
          : std::make_unique<Lending>(pool);
  auto tiering = std::make_unique<Tiering>(
      *tiers_, *costs_, memory + pool_memory_->lease_table_offset(),
      std::move(lending));
  // Statistics show what the first plan will reckon with.
  tiering->counters->NoteRates(costs_->Used());
  return tiering;
}

absl::Status LoadedEngine::StartThreads(const Config& config) {
  if (config.response_cache_mb > 0) {
    responses_ = std::make_unique<ResponseCache>(
        fingerprint_, static_cast<std::uint64_t>(config.response_cache_mb)
                          << 20);
  }
  if (!config.no_cache_service && pool_memory_->arena() != nullptr) {
    if (auto s = StartAttach(config); !s.ok()) return s;
  }
  auto state = std::make_unique<EngineState>(
      *model_, chosen_.backend(), pool_memory_->blocks(), blocks_, tokenizer_,
      EngineState::Options{
          .fingerprint = fingerprint_,
          .eos_ids = {tokenizer_.eos_ids.begin(), tokenizer_.eos_ids.end()},
          .max_context = max_context_,
          .max_rows = StepRows(config, chosen_.backend().info()),
          .anchor_bytes = config.resident_bytes(),
          .seats = config.parallel,
          .retention = config.retention(),
          .memory = Memory(config, chosen_.device != nullptr)});
  if (chosen_.device != nullptr) {
    const absl::Status reserved = state->section_buffers.Reserve(
        anchor_slots_ + kStatesASeat * config.parallel);
    if (!reserved.ok()) return reserved;
  }
  if (tiers_ != nullptr) {
    state->tiering = MakeTiering(state->pool);
    state->tiering->ended = state->bell;
    record_source_ = std::make_unique<RecordSource>(
        *attach_, config.lookup_deadline(), state->tiering->counters);
  }
  scheduler_ = std::make_unique<Scheduler>(
      std::move(state),
      Scheduler::Options{.max_queue = config.max_queue, .debug = config.debug});
  return absl::OkStatus();
}

EngineService::Serving LoadedEngine::Serving(const v1::EngineStatus& base) {
  const model::ModelInfo& info = model_->info();
  const kernels::BackendInfo& backend = chosen_.backend().info();
  v1::EngineStatus status = base;
  status.set_model_name(served_name_);
  status.set_architecture(info.architecture);
  status.set_fingerprint(fingerprint_.data(), fingerprint_.size());
  status.set_backend(fmt::format("{} ({})", backend.name, backend.target));
  status.set_exactness(ExactnessName(backend.exactness));
  status.set_max_context_tokens(max_context_);
  status.set_vocab_size(info.vocab_size);
  status.mutable_eos_ids()->Add(tokenizer_.eos_ids.begin(),
                                tokenizer_.eos_ids.end());
  status.set_grid_tokens(model_->layout().grid_tokens);
  status.set_pool_bytes(pool_memory_->bytes());
  status.set_pool_blocks(blocks_);
  status.set_row_bytes(model_->layout().RowBytes());
  status.set_section_bytes(
      model::ComputeSectionOffsets(model_->layout()).bytes);
  status.set_anchor_slots(anchor_slots_);
  return {.scheduler = scheduler_.get(),
          .status = status,
          .tokenizer = std::move(tokenizer_),
          .cache_link =
              [this] {
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
              },
          .responses = responses_.get(),
          .records = record_source_.get()};
}

}  // namespace holdfast::engine
