// holdfast-cached: the cache service's process. Serves until SIGTERM, then goes
// on for the attached engine until that detaches, and ends.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "cachesvc/config.h"
#include "cachesvc/device/device_mapper.h"
#include "cachesvc/server.h"
#include "fmt/format.h"
#include "shared/attach/paths.h"
#include "shared/daemon.h"
#include "shared/deadlines.h"
#include "shared/log.h"
#include "spdlog/spdlog.h"

namespace holdfast::cachesvc {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kName[] = "holdfast-cached";
constexpr int kExitFailed = 1;
// Between two looks at the attach thread for the watchdog.
constexpr milliseconds kTick{2000};
// Between two looks for a second signal during a drain.
constexpr milliseconds kDrainTick{100};
// An engine that got its signal at the same moment has this much longer.
constexpr milliseconds kDrainSlack{5000};

// 16 restores, each with a file for every chunk of a million tokens: the usual
// 1,024 end a few long ones.
constexpr std::uint64_t kOpenFiles = 16384;

std::string StatusLine(const Server& server) {
  const auto peer = server.state().peer;
  return peer ? fmt::format("engine pid {} is attached", peer->pid)
              : "no engine is attached";
}

// The watchdog is fed only while the attach thread makes progress.
void ServeUntilSignal(Server& server, SignalWaiter& signals) {
  while (!signals.Wait(kTick)) {
    if (!server.Responds(deadlines::kControl)) {
      spdlog::error("the attach thread does not respond");
      continue;
    }
    NotifyWatchdog();
    NotifyStatus(StatusLine(server));
  }
}

// A second signal cuts the drain short.
void Drain(Server& server, SignalWaiter& signals) {
  server.BeginDrain();
  const auto start = steady_clock::now();
  const auto deadline =
      start + deadlines::Drain(server.pool_bytes()) + kDrainSlack;
  bool detached = server.WaitDetached(milliseconds(0));
  if (!detached) spdlog::info("draining: {}", StatusLine(server));
  while (!detached && steady_clock::now() < deadline) {
    if (signals.Wait(milliseconds(0))) break;
    NotifyWatchdog();
    detached = server.WaitDetached(kDrainTick);
  }
  spdlog::info(
      "drained detached={} ms={}", detached,
      std::chrono::duration_cast<milliseconds>(steady_clock::now() - start)
          .count());
}

int Run(const Config& config, SignalWaiter& signals) {
  if (auto status = PrepareRunDirectory(config.run_dir); !status.ok())
    return BadConfig(kName, status);
  // Of both sockets: they live and die together.
  absl::Status status = LockSocket(attach::CacheSocketPath(config.run_dir));
  if (!status.ok()) {
    spdlog::error("{}", std::string(status.message()));
    return kExitFailed;
  }
  auto server = Server::Start(config, MakeDeviceMapper());
  if (!server.ok()) {
    spdlog::error("{}", std::string(server.status().message()));
    return kExitFailed;
  }
  spdlog::info("serving run_dir={}", config.run_dir);
  NotifyReady(StatusLine(**server));
  ServeUntilSignal(**server, signals);
  NotifyStopping();
  Drain(**server, signals);
  (*server)->Stop();
  return EXIT_SUCCESS;
}

int Main(int argc, char** argv) {
  Config config;
  CLI::App app("Holdfast's cache service: keeps what outlives a request",
               kName);
  AddFlags(app, config);
  if (const auto code = ParseCommandLine(app, argc, argv)) return *code;
  absl::Status status = config.Validate();
  if (status.ok()) status = InitLog("cached", config.log_level);
  if (!status.ok()) return BadConfig(kName, status);
  auto signals = SignalWaiter::Create();
  if (!signals.ok()) return BadConfig(kName, signals.status());
  LogConfig(app);
  if (const auto most = RaiseOpenFiles(kOpenFiles); most < kOpenFiles) {
    spdlog::warn("only {} files may be open: long restores may miss", most);
  }
  return Run(config, *signals);
}

}  // namespace
}  // namespace holdfast::cachesvc

int main(int argc, char** argv) { return holdfast::cachesvc::Main(argc, argv); }
