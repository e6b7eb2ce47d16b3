#include "engine/pool/pool_memory.h"

#include <string>
#include <utility>

#include "engine/cache/leases.h"
#include "engine/model_status.h"
#include "fmt/format.h"

namespace holdfast::engine {

absl::Status PoolMemory::MakeArena(int blocks, std::size_t block_bytes) {
  arena_blocks_ = blocks;
  lease_table_offset_ = static_cast<std::uint64_t>(blocks) * block_bytes;
  auto arena = MemfdArena::Create("holdfast-pool",
                                  lease_table_offset_ + kLeaseTableBytes,
                                  ArenaWriters::kCreatorOnly);
  if (!arena.ok()) return arena.status();
  arena_.emplace(*std::move(arena));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PoolMemory>> PoolMemory::OnHost(
    int blocks, std::size_t block_bytes) {
  std::unique_ptr<PoolMemory> memory(new PoolMemory);
  memory->bytes_ = static_cast<std::uint64_t>(blocks) * block_bytes;
  if (auto status = memory->MakeArena(blocks, block_bytes); !status.ok()) {
    return status;
  }
  return memory;
}

absl::StatusOr<std::unique_ptr<PoolMemory>> PoolMemory::OnDevice(
    kernels::Backend& backend, int blocks, std::size_t block_bytes,
    int lent_blocks) {
  std::unique_ptr<PoolMemory> memory(new PoolMemory);
  memory->bytes_ = static_cast<std::uint64_t>(blocks) * block_bytes;
  auto device = backend.Allocate(memory->bytes_ + kCheckPageBytes);
  if (!device.ok()) {
    return absl::ResourceExhaustedError(fmt::format(
        "the pool of {} blocks does not fit: {}: choose another --pool-tokens "
        "or --pool-gb",
        blocks, device.status().message()));
  }
  memory->device_ = *std::move(device);
  if (lent_blocks == 0) return memory;
  if (auto status = memory->MakeArena(lent_blocks, block_bytes); !status.ok()) {
    return status;
  }
  return memory;
}

std::byte* PoolMemory::blocks() const {
  return device_ != nullptr ? static_cast<std::byte*>(device_->data())
                            : arena_->data();
}

}  // namespace holdfast::engine
