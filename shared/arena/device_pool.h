// A pool in the memory of a device, as one process tells another where it is
// (deploy/GPU.md, arena `cuda_ipc`). Only its owner writes it.
#ifndef HOLDFAST_SHARED_ARENA_DEVICE_POOL_H_
#define HOLDFAST_SHARED_ARENA_DEVICE_POOL_H_

#include <array>
#include <cstdint>

namespace holdfast {

// A whole allocation of a device's memory, alone in what its handle shows.
struct DeviceMemoryHandle {
  std::array<std::uint8_t, 64> ipc = {};          // cudaIpcMemHandle_t
  std::array<std::uint8_t, 16> device_uuid = {};  // ordinals mean nothing
  std::uint64_t bytes = 0;
  // Whose it is, as it sees itself: handles of a memory freed and allocated
  // anew can be equal byte by byte.
  std::uint32_t exporter_pid = 0;
  std::uint64_t exporter_start = 0;  // clock ticks since boot
};

// Bytes that the owner chose at random and the other side reads back: they say
// that it is this memory that was mapped.
inline constexpr std::size_t kDeviceCheckBytes = 32;
using DeviceCheck = std::array<std::uint8_t, kDeviceCheckBytes>;

struct DevicePool {
  DeviceMemoryHandle memory;
  std::uint64_t block_count = 0;   // block 0 at the start of the memory
  std::uint64_t check_offset = 0;  // behind the blocks
  DeviceCheck check = {};          // what lies there; the owner's to know
};

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_ARENA_DEVICE_POOL_H_
