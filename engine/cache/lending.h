// Blocks as the cache service can read them.
#ifndef HOLDFAST_ENGINE_CACHE_LENDING_H_
#define HOLDFAST_ENGINE_CACHE_LENDING_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "engine/pool/block_pool.h"
#include "kernels/backend.h"

namespace holdfast::engine {

// On the host: the pool's own blocks, which the cache service maps. On a
// device: copies of them in memory that it maps, made when they are lent.
// Used by the engine thread.
class Lending {
 public:
  // Lends the blocks of `pool`, which outlives this, themselves.
  explicit Lending(BlockPool& pool) : pool_(pool) {}
  // Lends copies: `memory`, host memory, has room for `blocks` of them. Pool,
  // backend and memory outlive this.
  Lending(BlockPool& pool, kernels::Backend& backend, std::byte* memory,
          int blocks)
      : pool_(pool), backend_(&backend) {
    copies_.emplace(memory, pool.block_bytes(), blocks);
  }

  // What leases name blocks of, in host memory.
  BlockPool& pool() { return copies_ ? *copies_ : pool_; }
  // Whether a lease keeps blocks from the requests.
  bool holds_pool_blocks() const { return !copies_.has_value(); }

  // Blocks of pool() with the bytes of `blocks`; each has one reference, the
  // caller's. Nothing when there is no room for the copies or they fail.
  std::optional<std::vector<BlockId>> Lend(std::span<const BlockId> blocks);
  // Gives back what Lend, or StageState in pool(), gave.
  void Release(std::span<const BlockId> lent);

 private:
  BlockPool& pool_;
  kernels::Backend* backend_ = nullptr;
  std::optional<BlockPool> copies_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_LENDING_H_
