// The operating system's files behind an interface, so that tests can fail any
// call and lose unsynced data (shared/fs/testing/fake_file_system.h).
//
// Data goes around the page cache: memory, offsets and sizes of every read and
// write are multiples of kBlockAlignment. There is no buffered mode to fall
// back to; a file system that cannot do direct I/O is an error at open.
#ifndef HOLDFAST_SHARED_FS_FILE_SYSTEM_H_
#define HOLDFAST_SHARED_FS_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast {

// An open file. Thread-safe; closes when destroyed. Reads and writes that are
// under way when another thread unlinks the name still work.
class File {
 public:
  virtual ~File() = default;

  // One pread or pwrite. The result may be less than asked for; a read of 0
  // bytes is the end of the file.
  virtual absl::StatusOr<std::size_t> ReadAt(std::span<std::byte> to,
                                             std::uint64_t offset) = 0;
  virtual absl::StatusOr<std::size_t> WriteAt(std::span<const std::byte> from,
                                              std::uint64_t offset) = 0;
  // Reserves the final size before the first write: writes that extend a file
  // run one after another, and a full disk shows here.
  virtual absl::Status Allocate(std::uint64_t bytes) = 0;
  // fdatasync. A failure is final: the kernel may have dropped the pages, so
  // the file must be thrown away, never synced again.
  virtual absl::Status DataSync() = 0;
  // For io_uring; -1 where there is no descriptor.
  virtual int fd() const = 0;
  virtual const std::string& path() const = 0;
};

enum class OpenMode {
  kRead,
  kCreate,  // for writing; the name must not exist
};

struct DirectoryEntry {
  std::string name;
  std::uint64_t bytes = 0;
};

// Thread-safe. Messages name the call, the path and the reason. NotFound,
// AlreadyExists and ResourceExhausted (no space) mean just that.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual absl::StatusOr<std::shared_ptr<File>> Open(const std::string& path,
                                                     OpenMode mode) = 0;
  // Replaces `to`. Durable after SyncDirectory() of its directory.
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  virtual absl::Status Unlink(const std::string& path) = 0;
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // Mode 0700; OK when it is there already.
  virtual absl::Status MakeDirectory(const std::string& path) = 0;
  // Regular files only, in no order.
  virtual absl::StatusOr<std::vector<DirectoryEntry>> List(
      const std::string& path) = 0;
  // What an unprivileged writer may still use.
  virtual absl::StatusOr<std::uint64_t> FreeBytes(const std::string& path) = 0;
};

// The machine's. Lives as long as the process.
FileSystem& RealFileSystem();

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_FS_FILE_SYSTEM_H_
