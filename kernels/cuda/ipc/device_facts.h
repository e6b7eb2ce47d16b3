// What the device is and what the machine allows, for operators and bug
// reports: `--probe` prints it as JSON.
#ifndef HOLDFAST_KERNELS_CUDA_IPC_DEVICE_FACTS_H_
#define HOLDFAST_KERNELS_CUDA_IPC_DEVICE_FACTS_H_

#include <cstdint>
#include <string>

#include "kernels/status.h"

namespace holdfast::kernels::cuda {

// A JSON object, several lines. Takes seconds: makes the round trips of
// arena_probe.h and times copies. Where there is no device the object says why.
std::string DeviceFactsJson(const std::string& program);

// A JSON string with its quotes.
std::string JsonString(const std::string& text);

// Bytes that caches and weights may take: on a device that shares the host's
// memory what the kernel calls available (the device's own "free" does not
// count the page cache), less a reserve that keeps the machine alive; else what
// the device has free, less what other processes' contexts and code take.
struct MemoryBudget {
  std::uint64_t bytes = 0;
  bool integrated = false;
  std::string how;
};
StatusOr<MemoryBudget> DeviceBudget();

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_IPC_DEVICE_FACTS_H_
