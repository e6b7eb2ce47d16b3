#include "engine/model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/model/message.h"

namespace holdfast::model {
namespace {

kernels::Status Failed(const char* call, const std::string& path, int error) {
  std::string message = Message(path, ": ", call, ": ", std::strerror(error));
  if (error == ENOENT) return kernels::NotFound(std::move(message));
  return kernels::DataLoss(std::move(message));
}

}  // namespace

kernels::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed("open", path, errno);
  struct stat info = {};
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return Failed("fstat", path, error);
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return kernels::InvalidArgument(Message(path, ": not a regular file"));
  }
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<std::size_t>(info.st_size);
  if (file.size_ > 0) {
    void* data = mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      close(fd);
      return Failed("mmap", path, error);
    }
    file.data_ = static_cast<const std::byte*>(data);
  }
  close(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace holdfast::model
