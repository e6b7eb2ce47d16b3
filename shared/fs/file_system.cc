#include "shared/fs/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "shared/arena/unique_fd.h"

namespace holdfast {
namespace {

absl::Status Failed(std::string_view call, const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, fmt::format("{} {}", call, path));
}

class RealFile final : public File {
 public:
  RealFile(std::string path, UniqueFd fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}

  absl::StatusOr<std::size_t> ReadAt(std::span<std::byte> to,
                                     std::uint64_t offset) override {
    while (true) {
      const ssize_t n =
          pread(fd_.get(), to.data(), to.size(), static_cast<off_t>(offset));
      if (n >= 0) return static_cast<std::size_t>(n);
      if (errno != EINTR) return Failed("read", path_);
    }
  }

  absl::StatusOr<std::size_t> WriteAt(std::span<const std::byte> from,
                                      std::uint64_t offset) override {
    while (true) {
      const ssize_t n = pwrite(fd_.get(), from.data(), from.size(),
                               static_cast<off_t>(offset));
      if (n >= 0) return static_cast<std::size_t>(n);
      if (errno != EINTR) return Failed("write", path_);
    }
  }

  absl::Status Allocate(std::uint64_t bytes) override {
    while (fallocate(fd_.get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
      if (errno == EINTR) continue;
      // Some file systems cannot reserve; the size alone still keeps writes
      // from extending the file.
      if (errno != EOPNOTSUPP) return Failed("allocate", path_);
      if (ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) {
        return Failed("set the size of", path_);
      }
      break;
    }
    return absl::OkStatus();
  }

  absl::Status DataSync() override {
    if (fdatasync(fd_.get()) != 0) return Failed("fdatasync", path_);
    return absl::OkStatus();
  }

  int fd() const override { return fd_.get(); }
  const std::string& path() const override { return path_; }

 private:
  std::string path_;
  UniqueFd fd_;
};

class Posix final : public FileSystem {
 public:
  absl::StatusOr<std::shared_ptr<File>> Open(const std::string& path,
                                             OpenMode mode) override {
    const int flags =
        mode == OpenMode::kRead ? O_RDONLY : O_WRONLY | O_CREAT | O_EXCL;
    UniqueFd fd(open(path.c_str(), flags | O_DIRECT | O_CLOEXEC | O_NOFOLLOW,
                     S_IRUSR | S_IWUSR));
    if (!fd) {
      // EINVAL from open is how a file system refuses O_DIRECT.
      return Failed(errno == EINVAL ? "open for direct I/O" : "open", path);
    }
    return std::make_shared<RealFile>(path, std::move(fd));
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) != 0) {
      return Failed("rename to", to);
    }
    return absl::OkStatus();
  }

  absl::Status Unlink(const std::string& path) override {
    if (unlink(path.c_str()) != 0) return Failed("unlink", path);
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) return Failed("open directory", path);
    if (fsync(fd.get()) != 0) return Failed("fsync directory", path);
    return absl::OkStatus();
  }

  absl::Status MakeDirectory(const std::string& path) override {
    if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
      return Failed("make directory", path);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<DirectoryEntry>> List(
      const std::string& path) override {
    struct Closer {
      void operator()(DIR* directory) const { closedir(directory); }
    };
    const std::unique_ptr<DIR, Closer> directory(opendir(path.c_str()));
    if (!directory) return Failed("list directory", path);
    std::vector<DirectoryEntry> entries;
    while (true) {
      errno = 0;
      const dirent* entry = readdir(directory.get());
      if (entry == nullptr) break;
      struct stat info;
      if (fstatat(dirfd(directory.get()), entry->d_name, &info,
                  AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) continue;
        return Failed("stat in directory", path);
      }
      if (!S_ISREG(info.st_mode)) continue;
      entries.push_back(
          {entry->d_name, static_cast<std::uint64_t>(info.st_size)});
    }
    if (errno != 0) return Failed("list directory", path);
    return entries;
  }

  absl::StatusOr<std::uint64_t> FreeBytes(const std::string& path) override {
    struct statvfs info;
    if (statvfs(path.c_str(), &info) != 0) return Failed("statvfs", path);
    return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
  }
};

}  // namespace

FileSystem& RealFileSystem() {
  static Posix* const instance = new Posix;
  return *instance;
}

}  // namespace holdfast
