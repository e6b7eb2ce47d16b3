// Whether another process still has its memory.
#ifndef HOLDFAST_CACHESVC_DEVICE_PROCESS_WATCH_H_
#define HOLDFAST_CACHESVC_DEVICE_PROCESS_WATCH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "shared/arena/unique_fd.h"

namespace holdfast::cachesvc {

// A process that dies gives up its address space before it closes a descriptor,
// and a device's memory goes with a descriptor of its driver. So if the process
// has an address space after a copy out of its device memory, that memory was
// there during the copy. (The end of its socket comes too late to tell.)
class ProcessWatch {
 public:
  // `start`: when it started, in clock ticks since boot; another process of
  // this id is refused.
  static absl::StatusOr<ProcessWatch> Open(std::uint32_t pid,
                                           std::uint64_t start);
  // Of this process and no later one of the same id. Thread-safe.
  bool HasMemory() const;

 private:
  explicit ProcessWatch(UniqueFd stat) : stat_(std::move(stat)) {}

  UniqueFd stat_;  // of /proc
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_DEVICE_PROCESS_WATCH_H_
