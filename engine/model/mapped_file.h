// A whole file, mapped read-only.
#ifndef HOLDFAST_ENGINE_MODEL_MAPPED_FILE_H_
#define HOLDFAST_ENGINE_MODEL_MAPPED_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "kernels/status.h"

namespace holdfast::model {

// Owns the mapping; views into it are valid until destruction, also after a
// move. The file must not be shortened while it is mapped: the kernel answers
// a read past its new end with SIGBUS.
class MappedFile {
 public:
  // An error names the path and errno.
  static kernels::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(data_), size_};
  }

 private:
  MappedFile() = default;

  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_MAPPED_FILE_H_
