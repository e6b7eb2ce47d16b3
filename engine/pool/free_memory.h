// How much memory the machine can still give.
#ifndef HOLDFAST_ENGINE_POOL_FREE_MEMORY_H_
#define HOLDFAST_ENGINE_POOL_FREE_MEMORY_H_

#include <cstdint>

namespace holdfast::engine {

// MemAvailable of /proc/meminfo; 0 where that cannot be read.
std::uint64_t AvailableMemoryBytes();

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_POOL_FREE_MEMORY_H_
