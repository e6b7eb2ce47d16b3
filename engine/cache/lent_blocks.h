// The numbers under which blocks are lent (shared/attach/PROTOCOL.md).
#ifndef HOLDFAST_ENGINE_CACHE_LENT_BLOCKS_H_
#define HOLDFAST_ENGINE_CACHE_LENT_BLOCKS_H_

#include "engine/pool/block_pool.h"

namespace holdfast::engine {

// Blocks in host memory that the cache service maps, under their own numbers;
// behind them, where there is one, the blocks of a pool on a device. Both pools
// outlive this; copies are cheap.
class LentBlocks {
 public:
  // One pool, in host memory. Implicit: it is lent under its own numbers.
  LentBlocks(BlockPool& pool) : host_(&pool) {}
  // `host` has copies of blocks of `device`, and states.
  LentBlocks(BlockPool& host, BlockPool& device)
      : host_(&host), device_(&device) {}

  BlockId OfDevice(BlockId block) const { return host_->blocks() + block; }
  // Whether a request may want it: no copy.
  bool OfThePool(BlockId lent) const {
    return device_ == nullptr || OnDevice(lent);
  }

  void Ref(BlockId lent) const {
    if (OnDevice(lent)) return device_->Ref(lent - host_->blocks());
    host_->Ref(lent);
  }
  void Unref(BlockId lent) const {
    if (OnDevice(lent)) {
      return device_->Unref(lent - host_->blocks(), BlockPool::Touch::kNo);
    }
    host_->Unref(lent, BlockPool::Touch::kNo);
  }

 private:
  bool OnDevice(BlockId lent) const { return lent >= host_->blocks(); }

  BlockPool* host_;
  BlockPool* device_ = nullptr;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_LENT_BLOCKS_H_
