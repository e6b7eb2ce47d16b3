// A file system in memory that fails, writes short or crashes at the call its
// FaultPoint names. A crash loses what was not synced: data since the last
// DataSync() and names since the last SyncDirectory().
#ifndef HOLDFAST_SHARED_FS_TESTING_FAKE_FILE_SYSTEM_H_
#define HOLDFAST_SHARED_FS_TESTING_FAKE_FILE_SYSTEM_H_

#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "shared/fs/file_system.h"
#include "shared/testing/fault_point.h"

namespace holdfast::testing {

// Directories are durable as soon as they are made. Reads count as calls too.
// Thread-safe. `faults` must outlive it.
class FakeFileSystem final : public FileSystem {
 public:
  explicit FakeFileSystem(FaultPoint& faults) : faults_(faults) {}

  absl::StatusOr<std::shared_ptr<File>> Open(const std::string& path,
                                             OpenMode mode) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Unlink(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<DirectoryEntry>> List(
      const std::string& path) override;
  absl::StatusOr<std::uint64_t> FreeBytes(const std::string& path) override;

  // What a machine finds after a crash. With seed 0 everything unsynced is
  // gone; with another, each unsynced page and name is kept or lost at random.
  // Files that were open must not be used any more. Call FaultPoint::Clear().
  void Reboot(std::uint32_t seed);

  // Beside the counted calls, for tests.
  void set_free_bytes(std::uint64_t bytes) { free_bytes_ = bytes; }
  std::vector<std::string> Names(const std::string& directory) const;
  std::uint64_t TotalBytes() const;
  bool Exists(const std::string& path) const;
  // The content as it is now, and a way to damage it.
  std::vector<std::byte> Content(const std::string& path) const;
  void FlipBit(const std::string& path, std::uint64_t bit);

 private:
  friend class FakeFile;
  struct Inode {
    std::vector<std::byte> data;
    std::vector<std::byte> synced;
  };
  using Entries = std::map<std::string, std::shared_ptr<Inode>>;
  struct Directory {
    Entries now;
    Entries durable;
  };

  // Nothing when the call may go on.
  absl::Status Check(const std::string& call, const std::string& path);
  absl::StatusOr<Directory*> Find(const std::string& path);
  std::shared_ptr<Inode> FindInode(const std::string& path) const;

  FaultPoint& faults_;
  mutable std::mutex mutex_;
  std::map<std::string, Directory> directories_;
  std::uint64_t free_bytes_ = std::uint64_t{1} << 40;
};

}  // namespace holdfast::testing

#endif  // HOLDFAST_SHARED_FS_TESTING_FAKE_FILE_SYSTEM_H_
