// holdfast-engine: the model's process. Loads while the server already answers
// Status, serves until SIGTERM, drains, ends.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "CLI/CLI.hpp"
#include "engine/backend/choose_backend.h"
#include "engine/backend/cuda_device.h"
#include "engine/config.h"
#include "engine/server.h"
#include "engine/startup.h"
#include "shared/daemon.h"
#include "shared/deadlines.h"
#include "shared/log.h"

namespace holdfast::engine {
namespace {

using std::chrono::milliseconds;

constexpr char kName[] = "holdfast-engine";
constexpr milliseconds kPoll{500};
// Streams get this long to take their last event after a drain.
constexpr milliseconds kShutdown{2000};
constexpr int kExitFailed = 1;
// The device failed while serving: a new process may find it well (EX_OSERR).
constexpr int kExitDeviceLost = 71;
// A drain that is over, or that a second signal cut short, ends within this: a
// step on a device takes less.
constexpr milliseconds kDrainOverdue{10000};

using EngineOr = absl::StatusOr<std::unique_ptr<LoadedEngine>>;

void Shutdown(grpc::Server& server) {
  server.Shutdown(std::chrono::system_clock::now() + kShutdown);
}

// Waits for the model; a signal ends the process.
EngineOr Load(const Config& config, SignalWaiter& signals,
              grpc::Server& server) {
  auto loading = std::async(std::launch::async, [&config]() -> EngineOr {
    auto backend = ChooseBackend(config);
    if (!backend.ok()) return backend.status();
    return LoadedEngine::Load(config, *std::move(backend));
  });
  while (loading.wait_for(milliseconds(0)) != std::future_status::ready) {
    if (signals.Wait(milliseconds(20))) {
      // The loader cannot be interrupted and has nothing to lose.
      spdlog::info("stopped while loading");
      Shutdown(server);
      spdlog::shutdown();
      std::_Exit(EXIT_SUCCESS);
    }
  }
  return loading.get();
}

// False: the device was lost before a signal came.
bool ServeUntilSignal(LoadedEngine& engine, SignalWaiter& signals) {
  std::uint64_t last = 0;
  while (!signals.Wait(kPoll)) {
    if (engine.device_lost()) return false;
    const std::uint64_t progress = engine.scheduler().progress();
    if (progress != last) NotifyWatchdog();
    last = progress;
  }
  return true;
}

// Streams get their last event; nothing else of this process can be saved.
[[noreturn]] void EndWithoutDevice(grpc::Server& server, const char* why) {
  spdlog::critical("the CUDA device {}: this process ends, a new one is needed",
                   why);
  NotifyStopping();
  SetHealthy(server, false);
  // Its deadline cancels calls and waits on for those that cannot be.
  auto over = std::make_shared<std::promise<void>>();
  std::thread([&server, over] {
    Shutdown(server);
    over->set_value();
  }).detach();
  over->get_future().wait_for(kShutdown);
  spdlog::shutdown();
  std::_Exit(kExitDeviceLost);
}

// A second signal cuts the drain short. False: it does not end, as a call of
// the device does not return.
bool Drain(LoadedEngine& engine, SignalWaiter& signals) {
  Scheduler& scheduler = engine.scheduler();
  const std::uint64_t pool_bytes = engine.pool_bytes();
  using std::chrono::steady_clock;
  auto overdue =
      steady_clock::now() + deadlines::Drain(pool_bytes) + kDrainOverdue;
  auto done = std::make_shared<std::promise<Scheduler::DrainResult>>();
  auto drained = done->get_future();
  const milliseconds spill = SpillTime(pool_bytes);
  scheduler.Drain(deadlines::Drain(pool_bytes) - spill, spill,
                  [done](Scheduler::DrainResult r) { done->set_value(r); });
  while (drained.wait_for(milliseconds(0)) != std::future_status::ready) {
    if (signals.Wait(milliseconds(20))) {
      scheduler.Drain(milliseconds(0), milliseconds(0),
                      [](Scheduler::DrainResult) {});
      overdue = std::min(overdue, steady_clock::now() + kDrainOverdue);
    }
    if (engine.on_device() && steady_clock::now() >= overdue) return false;
    NotifyWatchdog();
  }
  const Scheduler::DrainResult result = drained.get();
  spdlog::info("drained finished={} cancelled={}", result.finished,
               result.cancelled);
  return true;
}

// What is wrong is a setting, or what it names: another try would end the same.
bool IsOfSettings(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
         absl::IsOutOfRange(status) || absl::IsUnimplemented(status);
}

int Run(const Config& config, SignalWaiter& signals) {
  if (auto status = PrepareRunDirectory(config.run_dir); !status.ok()) {
    spdlog::error("{}", std::string(status.message()));
    return kExitFailed;
  }
  const v1::EngineStatus process = ProcessStatus(config);
  EngineService service(process);
  auto server = StartServer(config.socket_path(), &service);
  if (!server.ok()) {
    spdlog::error("{}", std::string(server.status().message()));
    return kExitFailed;
  }
  EngineOr engine = Load(config, signals, **server);
  if (!engine.ok()) {
    spdlog::error("{}", std::string(engine.status().message()));
    Shutdown(**server);
    return IsOfSettings(engine.status()) ? kExitBadConfig : kExitFailed;
  }
  service.Serve((*engine)->Serving(process));
  SetHealthy(**server, true);
  spdlog::info("serving socket={}", config.socket_path());
  NotifyReady("serving");
  if (!ServeUntilSignal(**engine, signals)) {
    EndWithoutDevice(**server, "has failed for good");
  }
  NotifyStopping();
  SetHealthy(**server, false);
  if (!Drain(**engine, signals)) {
    EndWithoutDevice(**server, "does not return from a call");
  }
  Shutdown(**server);
  return EXIT_SUCCESS;
}

int Main(int argc, char** argv) {
  if (const auto code = RunCudaPeer(argc, argv)) return *code;
  Config config;
  CLI::App app("Holdfast's engine: serves one model by token ids", kName);
  AddFlags(app, config);
  if (const auto code = ParseCommandLine(app, argc, argv)) return *code;
  if (config.probe) {
    std::fputs(CudaFactsJson("/proc/self/exe").c_str(), stdout);
    return EXIT_SUCCESS;
  }
  absl::Status status = config.Validate();
  if (status.ok()) status = InitLog("engine", config.log_level);
  if (!status.ok()) return BadConfig(kName, status);
  auto signals = SignalWaiter::Create();
  if (!signals.ok()) return BadConfig(kName, signals.status());
  LogConfig(app);
  if (config.debug) {
    spdlog::warn(
        "DEBUG ENGINE: clients can force tokens and read digests of the state; "
        "never serve anyone with it");
  }
  return Run(config, *signals);
}

}  // namespace
}  // namespace holdfast::engine

int main(int argc, char** argv) { return holdfast::engine::Main(argc, argv); }
