// Bringing memory into the caches before it is used.
#ifndef HOLDFAST_KERNELS_HOST_FETCH_H_
#define HOLDFAST_KERNELS_HOST_FETCH_H_

#include <cstddef>

namespace holdfast::kernels {

inline constexpr std::size_t kCacheLine = 64;

// Asks for memory to be brought into the caches; does nothing where there is no
// memory.
inline void FetchLines(const void* data, std::size_t bytes) {
  const char* const start = static_cast<const char*>(data);
  for (std::size_t i = 0; i < bytes; i += kCacheLine) {
    __builtin_prefetch(start + i);
  }
}

// The same for memory that will be written. Where other cores have read it,
// each line's first write waits for all of them; asked for together, the lines
// come together.
inline void FetchLinesToWrite(void* data, std::size_t bytes) {
  char* const start = static_cast<char*>(data);
  for (std::size_t i = 0; i < bytes; i += kCacheLine) {
#if defined(__x86_64__)
    // The builtin becomes a fetch for reading unless the whole program may use
    // this instruction, which does nothing on a CPU that has it not.
    asm volatile("prefetchw %0" : : "m"(start[i]));
#else
    __builtin_prefetch(start + i, 1);
#endif
  }
}

// Pieces of memory with equal gaps between them, counted without the gaps.
struct Stripes {
  const std::byte* data = nullptr;
  std::size_t piece = 0;   // bytes, whole lines
  std::size_t stride = 0;  // from one piece's start to the next one's
};

// Goes through stripes line by line.
class LineCursor {
 public:
  LineCursor() = default;
  LineCursor(const Stripes& stripes, std::size_t offset)
      : at_(stripes.data + offset / stripes.piece * stripes.stride +
            offset % stripes.piece),
        gap_(stripes.stride - stripes.piece),
        lines_(stripes.piece / kCacheLine),
        left_(lines_ - offset % stripes.piece / kCacheLine) {}

  const std::byte* Next() {
    const std::byte* const line = at_;
    const bool ends = --left_ == 0;
    at_ += kCacheLine + (ends ? gap_ : 0);
    left_ = ends ? lines_ : left_;
    return line;
  }

 private:
  const std::byte* at_ = nullptr;
  std::size_t gap_ = 0;
  std::size_t lines_ = 0;
  std::size_t left_ = 0;
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_FETCH_H_
