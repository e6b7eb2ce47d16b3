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

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_FETCH_H_
