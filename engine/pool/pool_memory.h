// Where the pool's blocks lie, and where the cache service reads them.
#ifndef HOLDFAST_ENGINE_POOL_POOL_MEMORY_H_
#define HOLDFAST_ENGINE_POOL_POOL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "shared/arena/memfd_arena.h"

namespace holdfast::engine {

// Of a device's pool, behind its blocks: what shows another process that it has
// mapped this memory.
inline constexpr std::size_t kCheckPageBytes = 4096;

// Blocks in a memfd that the cache service maps (arena `host`), or in a
// device's memory with as many blocks in a memfd as states and copies of rows
// have room in (arenas `cuda_ipc`, `pinned`). The lease table lies behind the
// blocks of the memfd. Owned by one; the memory stays where it is.
class PoolMemory {
 public:
  static absl::StatusOr<std::unique_ptr<PoolMemory>> OnHost(
      int blocks, std::size_t block_bytes);
  // `backend` outlives it. No lent blocks: no memfd.
  static absl::StatusOr<std::unique_ptr<PoolMemory>> OnDevice(
      kernels::Backend& backend, int blocks, std::size_t block_bytes,
      int lent_blocks);

  // Of the pool; a device's addresses perhaps.
  std::byte* blocks() const;
  std::uint64_t bytes() const { return bytes_; }
  bool on_device() const { return device_ != nullptr; }
  // The blocks and the check page; of a pool on a device.
  const kernels::Buffer& device() const { return *device_; }

  // What the cache service maps; null: nothing.
  const MemfdArena* arena() const { return arena_ ? &*arena_ : nullptr; }
  int arena_blocks() const { return arena_blocks_; }
  std::uint64_t lease_table_offset() const { return lease_table_offset_; }

 private:
  PoolMemory() = default;
  absl::Status MakeArena(int blocks, std::size_t block_bytes);

  std::uint64_t bytes_ = 0;
  std::unique_ptr<kernels::Buffer> device_;
  std::optional<MemfdArena> arena_;
  int arena_blocks_ = 0;
  std::uint64_t lease_table_offset_ = 0;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_POOL_POOL_MEMORY_H_
