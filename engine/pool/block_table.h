// The blocks of one sequence, by position. Owns one reference to each pool
// block in it and gives them back, tail first, when it ends.
#ifndef HOLDFAST_ENGINE_POOL_BLOCK_TABLE_H_
#define HOLDFAST_ENGINE_POOL_BLOCK_TABLE_H_

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "engine/pool/block_pool.h"

namespace holdfast::engine {

// Memory on a block's boundary.
struct AlignedFree {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedFree>;
// Null when there is no memory.
AlignedBytes AllocateAligned(std::size_t bytes);

class BlockTable {
 public:
  enum class Kind {
    // New blocks come from the pool, by eviction when they must.
    kPooled,
    // Leaves no trace: new blocks are free ones, then memory of its own where
    // the pool's is host memory; what it adopts is released untouched.
    kScratch,
  };

  // `pool` outlives the table. The references of a pooled table are of class
  // kResident until it is told otherwise, a scratch one's of none.
  BlockTable(BlockPool* pool, Kind kind)
      : pool_(pool),
        kind_(kind),
        retention_(kind == Kind::kPooled ? RetentionClass::kResident
                                         : RetentionClass::kNone) {}
  ~BlockTable() { Clear(); }
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;

  int size() const { return static_cast<int>(blocks_.size()); }
  Kind kind() const { return kind_; }
  // One pointer a block, as the model takes them.
  std::byte* const* pointers() const { return pointers_.data(); }
  std::byte* pointer(int i) const { return pointers_[i]; }
  // kNoBlock for memory outside the pool.
  BlockId block(int i) const { return blocks_[i].id; }
  // Of this table's reference to block i; the block may be of a higher class.
  RetentionClass retention(int i) const { return blocks_[i].retention; }
  // What blocks get that come from now on.
  RetentionClass retention() const { return retention_; }
  void set_retention(RetentionClass c) { retention_ = c; }
  // Blocks `first` to before `last` are of class `c` from now on.
  void Reclass(int first, int last, RetentionClass c);

  // Appends a block of others, for reading.
  void Adopt(BlockId block);
  // Appends a writable block; false when there is none.
  bool Append();
  // Puts `other`, which holds the same bytes, in the place of block i.
  void Replace(int i, BlockId other);
  // Blocks `first` and later have rows of provenance `session`.
  void MarkSession(int first);
  // Gives back every block but the first `blocks`, tail first.
  void Truncate(int blocks);
  void Clear() { Truncate(0); }

 private:
  struct Block {
    BlockId id = kNoBlock;
    AlignedBytes own;  // when id is kNoBlock
    RetentionClass retention = RetentionClass::kNone;
  };

  void Push(Block block, std::byte* pointer);

  BlockPool* pool_;
  Kind kind_;
  RetentionClass retention_;
  std::vector<Block> blocks_;
  std::vector<std::byte*> pointers_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_POOL_BLOCK_TABLE_H_
