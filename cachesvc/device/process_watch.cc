#include "cachesvc/device/process_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

struct Facts {
  std::uint64_t start = 0;
  std::uint64_t memory_bytes = 0;  // 0: it has no address space
};

// Nothing: it is gone.
std::optional<Facts> Read(int stat) {
  std::array<char, 4096> text;
  const ssize_t bytes = pread(stat, text.data(), text.size(), 0);
  if (bytes <= 0) return std::nullopt;
  const std::string line(text.data(), static_cast<std::size_t>(bytes));
  // The program's name, in brackets, may hold anything.
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  Facts facts;
  fields >> facts.start >> facts.memory_bytes;
  if (!fields) return std::nullopt;
  return facts;
}

}  // namespace

absl::StatusOr<ProcessWatch> ProcessWatch::Open(std::uint32_t pid,
                                                std::uint64_t start) {
  const std::string path = fmt::format("/proc/{}/stat", pid);
  UniqueFd stat(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!stat) return absl::ErrnoToStatus(errno, fmt::format("open {}", path));
  const auto facts = Read(stat.get());
  if (!facts || facts->start != start) {
    return absl::FailedPreconditionError(fmt::format(
        "process {} is not the engine: it is not to be seen from here", pid));
  }
  return ProcessWatch(std::move(stat));
}

bool ProcessWatch::HasMemory() const {
  const auto facts = Read(stat_.get());
  return facts && facts->memory_bytes > 0;
}

}  // namespace holdfast::cachesvc
