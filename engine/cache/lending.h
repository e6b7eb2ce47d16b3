// Blocks as the cache service can read them.
#ifndef HOLDFAST_ENGINE_CACHE_LENDING_H_
#define HOLDFAST_ENGINE_CACHE_LENDING_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/cache/lent_blocks.h"
#include "engine/pool/block_pool.h"
#include "kernels/backend.h"

namespace holdfast::engine {

// Arena `host`: the pool's own blocks, which the cache service maps. On a
// device: the pool's own blocks while the cache service has the device's memory
// mapped (`cuda_ipc`), else copies in host memory that it maps, made when they
// are lent (`pinned`). Used by the engine thread.
class Lending {
 public:
  // Lends the blocks of `pool`, which outlives this, themselves.
  explicit Lending(BlockPool& pool) : pool_(pool), numbers_(pool) {}
  // Of a pool on a device: `memory`, host memory, has room for `blocks` copies.
  // `mapped` says whether the pool is mapped at the moment; empty: never. Pool,
  // backend and memory outlive this.
  Lending(BlockPool& pool, kernels::Backend& backend, std::byte* memory,
          int blocks, std::function<bool()> mapped = {})
      : pool_(pool),
        backend_(&backend),
        mapped_(std::move(mapped)),
        copies_(std::in_place, memory, pool.block_bytes(), blocks),
        numbers_(*copies_, pool) {}
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;

  // Whose blocks are lent.
  BlockPool& rows() { return pool_; }
  // Where states are put to be lent: host memory.
  BlockPool& pool() { return copies_ ? *copies_ : pool_; }
  // What Lend() and leases count by.
  const LentBlocks& numbers() const { return numbers_; }

  // What does not fit now may fit when something was given back: so many blocks
  // of rows, and so many in pool().
  bool MayWaitFor(int rows, int in_pool) const {
    return copies_ && in_pool + (IsMapped() ? 0 : rows) <= copies_->blocks();
  }

  // The numbers of blocks with the bytes of `blocks`, as they are now; each has
  // one reference, the caller's. Nothing when there is no room for copies or
  // the device fails.
  std::optional<std::vector<BlockId>> Lend(std::span<const BlockId> blocks);
  // Gives back what Lend, or StageState in pool(), gave.
  void Release(std::span<const BlockId> lent);

 private:
  bool IsMapped() const { return mapped_ && mapped_(); }
  std::optional<std::vector<BlockId>> Copy(std::span<const BlockId> blocks);

  BlockPool& pool_;
  kernels::Backend* backend_ = nullptr;
  const std::function<bool()> mapped_;
  std::optional<BlockPool> copies_;
  const LentBlocks numbers_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_LENDING_H_
