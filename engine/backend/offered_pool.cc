#include "engine/backend/offered_pool.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/model_status.h"
#include "fmt/format.h"
#include "shared/deadlines.h"

namespace holdfast::engine {
namespace {

absl::StatusOr<DevicePool> Export(CudaDevice& device, const PoolMemory& memory,
                                  std::size_t block_bytes) {
  auto handle = device.Export(memory.device());
  if (!handle.ok()) return handle.status();
  DevicePool pool;
  pool.memory = *std::move(handle);
  pool.block_count = memory.bytes() / block_bytes;
  pool.check_offset = memory.bytes();
  if (getrandom(pool.check.data(), pool.check.size(), 0) !=
      static_cast<ssize_t>(pool.check.size())) {
    return absl::ErrnoToStatus(errno, "random bytes for the check page");
  }
  kernels::Backend& backend = device.backend();
  kernels::Status written = backend.Write(pool.check.data(), pool.check.size(),
                                          memory.blocks() + pool.check_offset);
  if (written.ok()) written = backend.Synchronize();
  if (!written.ok()) return ToAbslStatus(written);
  return pool;
}

}  // namespace

OfferedPool OfferPool(CudaDevice& device, const PoolMemory& memory,
                      std::size_t block_bytes, const std::string& program) {
  DeviceArena arena = device.ProbeArena(program, deadlines::kArenaProbe);
  OfferedPool offered;
  offered.reason = std::move(arena.reason);
  if (!arena.ipc) return offered;
  auto pool = Export(device, memory, block_bytes);
  if (!pool.ok()) {
    offered.reason =
        fmt::format("no cuda_ipc: {}", std::string(pool.status().message()));
    return offered;
  }
  offered.pool = *std::move(pool);
  return offered;
}

}  // namespace holdfast::engine
