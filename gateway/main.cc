// holdfast-gateway: HTTP in front of the engine.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "fmt/format.h"
#include "gateway/service/config.h"
#include "gateway/service/gateway.h"
#include "shared/daemon.h"
#include "shared/deadlines.h"
#include "shared/log.h"
#include "spdlog/spdlog.h"

namespace holdfast::gateway {
namespace {

constexpr std::chrono::milliseconds kLook{500};
constexpr char kName[] = "holdfast-gateway";

// Tools that start us on port 0 wait for this file: it appears whole.
absl::Status WritePort(const std::string& path, std::uint16_t port) {
  const std::string temporary = path + ".new";
  const std::string text = fmt::format("{}\n", port);
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, "create " + temporary);
  const bool written =
      write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int write_error = errno;
  close(fd);
  if (!written) return absl::ErrnoToStatus(write_error, "write " + temporary);
  if (rename(temporary.c_str(), path.c_str()) != 0)
    return absl::ErrnoToStatus(errno, "publish " + path);
  return absl::OkStatus();
}

// Sockets and files besides client connections.
constexpr std::uint64_t kOtherDescriptors = 128;

// The usual soft limit of 1,024 would end --max-connections early.
void RaiseDescriptorLimit(std::uint32_t max_connections) {
  const std::uint64_t wanted = max_connections + kOtherDescriptors;
  const std::uint64_t most = RaiseOpenFiles(wanted);
  if (most < wanted) {
    spdlog::warn("--max-connections {}: only {} files may be open",
                 max_connections, most);
  }
}

bool IsLoopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1";
}

int Stop(Gateway& gateway, SignalWaiter& signals) {
  NotifyStopping();
  const auto end = std::chrono::steady_clock::now() + deadlines::Drain(0);
  const bool drained = gateway.Drain([&] {
    NotifyWatchdog();
    return signals.Wait(std::chrono::milliseconds(0)).has_value() ||
           std::chrono::steady_clock::now() >= end;
  });
  spdlog::info(drained ? "stopped" : "stopped; unfinished answers were cut");
  return 0;
}

int Serve(Gateway& gateway, SignalWaiter& signals) {
  std::uint64_t beat = gateway.heartbeat();
  while (true) {
    const auto signal = signals.Wait(kLook);
    if (signal.has_value()) {
      spdlog::info("signal {}: finishing what runs", *signal);
      return Stop(gateway, signals);
    }
    if (const auto fatal = gateway.fatal()) return BadConfig(kName, *fatal);
    const std::uint64_t now = gateway.heartbeat();
    if (now != beat) NotifyWatchdog();
    beat = now;
  }
}

int ExitCode(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kInvalidArgument)
    return BadConfig(kName, status);
  std::fprintf(stderr, "%s: %s\n", kName,
               std::string(status.message()).c_str());
  return 1;
}

int Main(int argc, char** argv) {
  auto signals = SignalWaiter::Create();
  if (!signals.ok()) return ExitCode(signals.status());
  CLI::App app{"Holdfast's HTTP gateway", kName};
  GatewayConfig config;
  AddFlags(app, config);
  if (const auto exit = ParseCommandLine(app, argc, argv)) return *exit;
  absl::Status status = InitLog("gateway", config.log_level);
  if (status.ok()) status = Validate(config);
  if (status.ok()) status = PrepareRunDirectory(config.run_dir);
  if (status.ok())
    status = UnixTarget(config.run_dir + "/engine.sock").status();
  if (!status.ok()) return BadConfig(kName, status);
  status = LockSocket(config.run_dir + "/gateway");
  if (!status.ok()) return ExitCode(status);

  RaiseDescriptorLimit(config.max_connections);
  const std::string port_file = config.run_dir + "/gateway.port";
  auto gateway = Gateway::Start(config);
  if (!gateway.ok()) return ExitCode(gateway.status());
  status = WritePort(port_file, (*gateway)->port());
  if (!status.ok()) return ExitCode(status);
  LogConfig(app);
  const bool has_keys =
      !config.api_keys.empty() || !config.api_key_file.empty();
  if (!IsLoopback(config.host) && !has_keys) {
    spdlog::warn("--host {} and no API key: whoever reaches it may use it",
                 config.host);
  }
  const bool six = config.host.find(':') != std::string::npos;
  const std::string where =
      fmt::format("http://{}:{}", six ? "[" + config.host + "]" : config.host,
                  (*gateway)->port());
  spdlog::info("listening on {}", where);
  NotifyReady("listening on " + where);
  const int code = Serve(**gateway, *signals);
  unlink(port_file.c_str());
  return code;
}

}  // namespace
}  // namespace holdfast::gateway

int main(int argc, char** argv) { return holdfast::gateway::Main(argc, argv); }
