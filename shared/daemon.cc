#include "shared/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace holdfast {
namespace {

absl::Status ErrnoStatus(const std::string& what) {
  return absl::ErrnoToStatus(errno, what);
}

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv) {
  app.set_config("--config", "",
                 "read options from this file (name=value lines)");
  app.set_version_flag("--version", HOLDFAST_VERSION);
  app.allow_config_extras(CLI::config_extras_mode::error);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return kExitBadConfig;
  }
  return std::nullopt;
}

std::string DescribeConfig(const CLI::App& app) {
  return app.config_to_str(true, false);
}

void LogConfig(const CLI::App& app) {
  std::istringstream lines(DescribeConfig(app));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) spdlog::info("config {}", line);
  }
}

int BadConfig(std::string_view daemon, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", std::string(daemon).c_str(),
               std::string(status.message()).c_str());
  return kExitBadConfig;
}

absl::StatusOr<SignalWaiter> SignalWaiter::Create() {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  if (pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0)
    return ErrnoStatus("block signals");
  const int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return ErrnoStatus("signalfd");
  return SignalWaiter(fd);
}

SignalWaiter::SignalWaiter(SignalWaiter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

SignalWaiter::~SignalWaiter() {
  if (fd_ >= 0) close(fd_);
}

std::optional<int> SignalWaiter::Wait(std::chrono::milliseconds timeout) {
  pollfd poll_fd{.fd = fd_, .events = POLLIN, .revents = 0};
  if (poll(&poll_fd, 1, static_cast<int>(timeout.count())) <= 0)
    return std::nullopt;
  signalfd_siginfo info;
  if (read(fd_, &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

std::uint64_t RaiseOpenFiles(std::uint64_t wanted) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur >= wanted) return limit.rlim_cur;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

void NotifyReady(std::string_view status_line) {
  sd_notify(0, fmt::format("READY=1\nSTATUS={}", status_line).c_str());
}
void NotifyStatus(std::string_view status_line) {
  sd_notify(0, fmt::format("STATUS={}", status_line).c_str());
}
void NotifyStopping() { sd_notify(0, "STOPPING=1"); }
void NotifyWatchdog() { sd_notify(0, "WATCHDOG=1"); }

absl::Status PrepareRunDirectory(const std::string& path) {
  if (path.empty())
    return absl::InvalidArgumentError("--run-dir: must not be empty");
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(absl::StrCat("create run directory ", path));
  }
  struct stat info;
  if (stat(path.c_str(), &info) != 0)
    return ErrnoStatus(absl::StrCat("run directory ", path));
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("run directory ", path, ": not a directory"));
  }
  if (info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "run directory ", path, ": owned by uid ", info.st_uid, ", not by us"));
  }
  if ((info.st_mode & 0022) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("run directory ", path, ": others may write to it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> UnixTarget(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un{}.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path ", path, ": longer than ",
                     sizeof(sockaddr_un{}.sun_path) - 1,
                     " bytes; choose a shorter --run-dir"));
  }
  return absl::StrCat("unix:", path);
}

absl::Status LockSocket(const std::string& path) {
  const std::string lock = path + ".lock";
  const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(absl::StrCat("open ", lock));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(fd);
    if (error == EWOULDBLOCK) {
      return absl::AlreadyExistsError(absl::StrCat(
          path, ": another process serves it (pid ", ReadLine(lock), ")"));
    }
    return absl::ErrnoToStatus(error, absl::StrCat("lock ", lock));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 ||
      write(fd, pid.data(), pid.size()) != static_cast<ssize_t>(pid.size())) {
    return ErrnoStatus(absl::StrCat("write ", lock));
  }
  return absl::OkStatus();  // the descriptor stays open: the lock ends with the
                            // process
}

}  // namespace holdfast
