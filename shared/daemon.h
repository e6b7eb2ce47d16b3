// What every daemon's main does alike: configuration, signals, systemd.
#ifndef HOLDFAST_SHARED_DAEMON_H_
#define HOLDFAST_SHARED_DAEMON_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast {

// sysexits EX_CONFIG: systemd units do not restart on it.
inline constexpr int kExitBadConfig = 78;

// Adds --config FILE and --version, and parses. Returns the exit code when the
// process must end (0 after --help or --version, 78 for a bad flag or file,
// with the reason on standard error), nothing when it goes on. A name in the
// file that is no option's is bad: it would be a setting that does not hold.
std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv);

// The effective configuration, one "name=value" a line.
std::string DescribeConfig(const CLI::App& app);
// Logs it, each line behind "config".
void LogConfig(const CLI::App& app);

// Prints why and returns kExitBadConfig.
int BadConfig(std::string_view daemon, const absl::Status& status);

// SIGTERM and SIGINT as values. Make one at the start of main, before any
// thread: it blocks both signals in the whole process. SIGPIPE is ignored.
class SignalWaiter {
 public:
  static absl::StatusOr<SignalWaiter> Create();
  SignalWaiter(SignalWaiter&& other) noexcept;
  SignalWaiter& operator=(SignalWaiter&&) = delete;
  ~SignalWaiter();
  // The signal that came within `timeout`, or nothing.
  std::optional<int> Wait(std::chrono::milliseconds timeout);

 private:
  explicit SignalWaiter(int fd) : fd_(fd) {}
  int fd_;
};

// Raises the soft limit of open files to `wanted`, or as far as the hard one
// allows. Returns how many may be open then.
std::uint64_t RaiseOpenFiles(std::uint64_t wanted);

// sd_notify; silently nothing where no service manager listens.
void NotifyReady(std::string_view status_line);
void NotifyStatus(std::string_view status_line);
void NotifyStopping();
void NotifyWatchdog();

// Creates a directory for sockets with mode 0700 when it is absent; an error
// when it is not ours, or others may write to it.
absl::Status PrepareRunDirectory(const std::string& path);

// "unix:" + path for gRPC; an error when the path is too long for a socket.
absl::StatusOr<std::string> UnixTarget(const std::string& path);

// Takes an exclusive lock on `path`.lock for the life of the process, so that a
// second daemon cannot steal the socket. The error names the file and the
// process that holds it.
absl::Status LockSocket(const std::string& path);

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_DAEMON_H_
