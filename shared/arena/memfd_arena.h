// Memory that two processes share: a sealed memfd and its mappings. Only plain
// bytes live in it: no lock, no pointer, no container.
#ifndef HOLDFAST_SHARED_ARENA_MEMFD_ARENA_H_
#define HOLDFAST_SHARED_ARENA_MEMFD_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "boost/interprocess/mapped_region.hpp"
#include "shared/arena/unique_fd.h"

namespace holdfast {

// Who may write an arena through a mapping of its own.
enum class ArenaWriters {
  // The creator alone, through the mapping it made at Create(); whoever else
  // gets the descriptor can map it for reading only (F_SEAL_FUTURE_WRITE). The
  // engine's pool.
  kCreatorOnly,
  // Every holder of the descriptor. Staging memory.
  kEveryHolder,
};

// An arena of this process. Starts as zeros; a page takes memory only when it
// is first touched. Its size is sealed: no holder of the descriptor can make a
// mapping fault by truncating it. Movable; data() stays the same. Thread-safe
// in its accessors; the bytes are the owner's business.
class MemfdArena {
 public:
  // `name` shows in /proc/PID/maps and in error messages.
  static absl::StatusOr<MemfdArena> Create(const std::string& name,
                                           std::uint64_t bytes,
                                           ArenaWriters writers);

  MemfdArena(MemfdArena&&) = default;
  MemfdArena& operator=(MemfdArena&&) = default;

  // Aligned to the machine's page size.
  std::byte* data() const {
    return static_cast<std::byte*>(region_.get_address());
  }
  std::uint64_t bytes() const { return region_.get_size(); }
  // For SCM_RIGHTS; owned by the arena.
  int fd() const { return fd_.get(); }
  const std::string& name() const { return name_; }

 private:
  MemfdArena(std::string name, UniqueFd fd,
             boost::interprocess::mapped_region region);

  std::string name_;
  UniqueFd fd_;
  boost::interprocess::mapped_region region_;
};

// Another process's arena, mapped for reading. The mapping holds the memory
// also after the descriptor is closed and after the other process has ended;
// destroying this object gives it back.
class MappedArena {
 public:
  // Maps `bytes` of `fd`, which stays the caller's. Refused, with the reason
  // and `name` in the message, when it is no memfd of exactly this size, or
  // lacks the seals that an arena of `writers` has: without them the other side
  // could shrink it (SIGBUS here) or let a third process write it.
  static absl::StatusOr<MappedArena> MapReadOnly(const std::string& name,
                                                 int fd, std::uint64_t bytes,
                                                 ArenaWriters writers);

  MappedArena(MappedArena&&) = default;
  MappedArena& operator=(MappedArena&&) = default;

  const std::byte* data() const {
    return static_cast<const std::byte*>(region_.get_address());
  }
  std::uint64_t bytes() const { return region_.get_size(); }

 private:
  explicit MappedArena(boost::interprocess::mapped_region region);

  boost::interprocess::mapped_region region_;
};

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_ARENA_MEMFD_ARENA_H_
