// A pool on a device, offered to the cache service (deploy/GPU.md, arena
// `cuda_ipc`).
#ifndef HOLDFAST_ENGINE_BACKEND_OFFERED_POOL_H_
#define HOLDFAST_ENGINE_BACKEND_OFFERED_POOL_H_

#include <optional>
#include <string>

#include "engine/backend/cuda_device.h"
#include "engine/pool/pool_memory.h"
#include "shared/arena/device_pool.h"

namespace holdfast::engine {

struct OfferedPool {
  std::optional<DevicePool> pool = {};  // none: arena `pinned`
  std::string reason;
};

// Probes with a second process first, `program` as in CudaDevice::ProbeArena;
// writes the check page. The pool's memory outlives every attach.
OfferedPool OfferPool(CudaDevice& device, const PoolMemory& memory,
                      std::size_t block_bytes, const std::string& program);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_BACKEND_OFFERED_POOL_H_
