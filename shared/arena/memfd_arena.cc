#include "shared/arena/memfd_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "boost/interprocess/exceptions.hpp"
#include "fmt/format.h"

namespace holdfast {
namespace {

namespace bi = boost::interprocess;

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

int SealsOf(ArenaWriters writers) {
  return writers == ArenaWriters::kCreatorOnly
             ? kSizeSeals | F_SEAL_FUTURE_WRITE
             : kSizeSeals;
}

// What mapped_region asks of a thing that can be mapped.
struct MappableFd {
  bi::mapping_handle_t get_mapping_handle() const {
    return bi::ipcdetail::mapping_handle_from_file_handle(fd);
  }
  int fd;
};

absl::Status Failed(const char* what, const std::string& name, int error) {
  return absl::ErrnoToStatus(error, fmt::format("{} arena {}", what, name));
}

absl::StatusOr<bi::mapped_region> Map(const std::string& name, int fd,
                                      std::uint64_t bytes, bi::mode_t mode) {
  try {
    return bi::mapped_region(MappableFd{fd}, mode, 0, bytes);
  } catch (const bi::interprocess_exception& error) {
    return Failed(
        fmt::format("map {} bytes of", bytes).c_str(), name,
        error.get_native_error() != 0 ? error.get_native_error() : ENOMEM);
  }
}

absl::Status CheckSize(const std::string& name, std::uint64_t bytes) {
  constexpr auto kMax =
      static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  if (bytes == 0 || bytes > kMax) {
    return absl::InvalidArgumentError(
        fmt::format("arena {}: size {} is not possible", name, bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MemfdArena> MemfdArena::Create(const std::string& name,
                                              std::uint64_t bytes,
                                              ArenaWriters writers) {
  if (absl::Status status = CheckSize(name, bytes); !status.ok()) return status;
  UniqueFd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return Failed("create", name, errno);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return Failed(fmt::format("set {} bytes of", bytes).c_str(), name, errno);
  absl::StatusOr<bi::mapped_region> region =
      Map(name, fd.get(), bytes, bi::read_write);
  if (!region.ok()) return region.status();
  // After the map: F_SEAL_FUTURE_WRITE spares only mappings that exist.
  if (fcntl(fd.get(), F_ADD_SEALS, SealsOf(writers)) != 0)
    return Failed("seal", name, errno);
  // Advice: a kernel built without huge pages refuses it, and small pages hold
  // the same bytes.
  (void)madvise(region->get_address(), region->get_size(), MADV_HUGEPAGE);
  return MemfdArena(name, std::move(fd), *std::move(region));
}

MemfdArena::MemfdArena(std::string name, UniqueFd fd, bi::mapped_region region)
    : name_(std::move(name)), fd_(std::move(fd)), region_(std::move(region)) {}

absl::StatusOr<MappedArena> MappedArena::MapReadOnly(const std::string& name,
                                                     int fd,
                                                     std::uint64_t bytes,
                                                     ArenaWriters writers) {
  if (absl::Status status = CheckSize(name, bytes); !status.ok()) return status;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return absl::InvalidArgumentError(
        fmt::format("arena {}: the descriptor is no memfd", name));
  }
  const int missing = SealsOf(writers) & ~seals;
  if (missing != 0) {
    return absl::InvalidArgumentError(
        fmt::format("arena {}: seals {:#x} lack {:#x}", name, seals, missing));
  }
  struct stat info;
  if (fstat(fd, &info) != 0) return Failed("stat", name, errno);
  if (static_cast<std::uint64_t>(info.st_size) != bytes) {
    return absl::InvalidArgumentError(fmt::format(
        "arena {}: has {} bytes, not {}", name, info.st_size, bytes));
  }
  absl::StatusOr<bi::mapped_region> region =
      Map(name, fd, bytes, bi::read_only);
  if (!region.ok()) return region.status();
  return MappedArena(*std::move(region));
}

MappedArena::MappedArena(bi::mapped_region region)
    : region_(std::move(region)) {}

}  // namespace holdfast
