#include "cachesvc/store/open_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "cachesvc/index/rocksdb_index.h"
#include "fmt/format.h"
#include "shared/aligned_buffer.h"
#include "shared/deadlines.h"

namespace holdfast::cachesvc {
namespace {

absl::Status Failed(const std::string& what) {
  const int error = errno;
  return absl::ErrnoToStatus(error, what);
}

absl::Status PrepareFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(
      std::filesystem::path(folder).parent_path(), error);
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return Failed("make the cache folder " + folder);
  }
  struct stat info;
  if (stat(folder.c_str(), &info) != 0) {
    return Failed("stat the cache folder " + folder);
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(fmt::format(
        "{} is no folder of ours: its owner is uid {}", folder, info.st_uid));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(
        fmt::format("others may write to {} (mode {:o}): it must be 0700",
                    folder, info.st_mode & 07777));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> LockFolder(const std::string& folder) {
  const std::string path = folder + "/lock";
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                   S_IRUSR | S_IWUSR));
  if (!fd) return Failed("open " + path);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    char pid[32] = {};
    const ssize_t n = pread(fd.get(), pid, sizeof(pid) - 1, 0);
    return absl::AlreadyExistsError(
        fmt::format("the cache folder {} is in use by process {}", folder,
                    n > 0 ? std::string(pid) : "unknown"));
  }
  const std::string pid = std::to_string(getpid());
  if (ftruncate(fd.get(), 0) != 0 ||
      pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    return Failed("write " + path);
  }
  return fd;
}

// One page written and read around the page cache.
absl::Status ProbeDirectIo(const std::string& folder, IoPool& pool) {
  FileSystem& fs = RealFileSystem();
  const std::string path = folder + "/probe";
  (void)fs.Unlink(path);
  auto file = fs.Open(path, OpenMode::kCreate);
  if (!file.ok()) return file.status();
  auto page = std::make_shared<AlignedBuffer>(kBlockAlignment);
  auto batch = pool.Submit({IoRequest::Write(*file, 0, page->span())}, page);
  absl::Status status =
      batch.ok() ? (*batch)->WaitAll(std::chrono::steady_clock::now() +
                                     deadlines::kDiskProbe)
                 : batch.status();
  (void)fs.Unlink(path);
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      fmt::format("direct I/O on {} does not work: {}", folder,
                                  std::string(status.message())));
}

absl::Status OpenParts(const OpenStoreOptions& options, OpenedStore& opened) {
  const RocksDbOptions rocks{options.store.folder + "/index",
                             options.index_cache_bytes, nullptr};
  auto index = OpenRocksDbIndex(rocks);
  if (!index.ok()) return index.status();
  opened.index = *std::move(index);
  auto store = ChunkStore::Open(
      {RealFileSystem(), *opened.pool, *opened.index, SteadyClock()},
      options.store);
  if (!store.ok()) return store.status();
  opened.store = *std::move(store);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<OpenedStore>> OpenStore(
    const OpenStoreOptions& options) {
  const std::string& folder = options.store.folder;
  if (auto s = PrepareFolder(folder); !s.ok()) return s;
  auto opened = std::make_unique<OpenedStore>();
  auto lock = LockFolder(folder);
  if (!lock.ok()) return lock.status();
  opened->lock = *std::move(lock);
  auto pool = MakeIoPool(options.pool);
  if (!pool.ok()) return pool.status();
  opened->pool = *std::move(pool);
  if (auto s = ProbeDirectIo(folder, *opened->pool); !s.ok()) return s;
  absl::Status status = OpenParts(options, *opened);
  if (absl::IsDataLoss(status)) {
    opened->index_was_damaged = std::string(status.message());
    opened->index.reset();
    if (auto s = MoveIndexAside(folder + "/index"); !s.ok()) return s;
    status = OpenParts(options, *opened);
  }
  if (!status.ok()) return status;
  return opened;
}

}  // namespace holdfast::cachesvc
