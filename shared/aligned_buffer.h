// Memory that direct I/O can read and write.
#ifndef HOLDFAST_SHARED_ALIGNED_BUFFER_H_
#define HOLDFAST_SHARED_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "shared/cache_layout.h"
#include "shared/check.h"

namespace holdfast {

// `bytes` rounded up to whole pages of direct I/O.
inline constexpr std::uint64_t PagesUp(std::uint64_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

// Zeros at first. Aborts when there is no memory. Movable.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Rounded up to whole pages; size() is what was asked for, rounded.
  explicit AlignedBuffer(std::size_t bytes) : size_(PagesUp(bytes)) {
    if (size_ == 0) return;
    memory_.reset(
        static_cast<std::byte*>(std::aligned_alloc(kBlockAlignment, size_)));
    HF_CHECK(memory_ != nullptr);
    std::memset(memory_.get(), 0, size_);
  }

  std::byte* data() { return memory_.get(); }
  const std::byte* data() const { return memory_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() { return {memory_.get(), size_}; }
  std::span<const std::byte> span() const { return {memory_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_ALIGNED_BUFFER_H_
