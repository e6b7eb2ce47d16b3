// Device memory with a pattern, for round trips between two processes.
#ifndef HOLDFAST_KERNELS_CUDA_IPC_PROBE_MEMORY_H_
#define HOLDFAST_KERNELS_CUDA_IPC_PROBE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/ipc/imported_pool.h"
#include "kernels/status.h"

namespace holdfast::kernels::cuda {

inline constexpr std::size_t kProbeBytes = kDeviceGranule;

// kProbeBytes of numbers, others for each seed.
std::vector<std::uint64_t> Pattern(std::uint64_t seed);
Status WritePattern(std::uint64_t seed, std::byte* memory);
StatusOr<DeviceMemory> PatternMemory(std::uint64_t seed);
StatusOr<std::uint64_t> SumOfDevice(const std::byte* memory);
// Of another process's memory, read as the cache service reads a pool.
StatusOr<std::uint64_t> SumOfPool(ImportedPool& pool);
// Whether `got` is the sum of this pattern; `who` read it.
Status ExpectSum(std::uint64_t got, std::uint64_t seed, const char* who);

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_IPC_PROBE_MEMORY_H_
