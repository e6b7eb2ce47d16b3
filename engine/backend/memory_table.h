// What a device's memory goes to, for the log at start.
#ifndef HOLDFAST_ENGINE_BACKEND_MEMORY_TABLE_H_
#define HOLDFAST_ENGINE_BACKEND_MEMORY_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/backend/cuda_device.h"

namespace holdfast::engine {

struct DeviceMemoryPlan {
  DeviceBudget budget;  // before pool, states and staging were taken
  std::uint64_t weight_bytes = 0;
  std::vector<DeviceMemoryUse> workspace;
  std::uint64_t pool_bytes = 0;
  std::uint64_t state_bytes = 0;  // anchors and running sequences
  int states = 0;
  std::uint64_t staging_bytes = 0;  // host memory; 0: no cache service
  std::string staging_pinned;       // or why it is not

  // What is still to be taken. More than the budget is an error: a board that
  // shares its memory would hang.
  std::uint64_t wanted() const {
    return pool_bytes + state_bytes + staging_bytes;
  }
};

// Several lines.
std::string DescribeDeviceMemory(const DeviceMemoryPlan& plan);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_BACKEND_MEMORY_TABLE_H_
