#include "engine/pool/block_table.h"

#include <utility>

#include "shared/cache_layout.h"

namespace holdfast::engine {

AlignedBytes AllocateAligned(std::size_t bytes) {
  const std::size_t rounded =
      (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
  return AlignedBytes(
      static_cast<std::byte*>(std::aligned_alloc(kBlockAlignment, rounded)));
}

BlockTable::BlockTable(BlockTable&& other) noexcept
    : pool_(other.pool_),
      kind_(other.kind_),
      retention_(other.retention_),
      blocks_(std::exchange(other.blocks_, {})),
      pointers_(std::exchange(other.pointers_, {})) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  if (this == &other) return *this;
  Clear();
  pool_ = other.pool_;
  kind_ = other.kind_;
  retention_ = other.retention_;
  blocks_ = std::exchange(other.blocks_, {});
  pointers_ = std::exchange(other.pointers_, {});
  return *this;
}

void BlockTable::Push(Block block, std::byte* pointer) {
  blocks_.push_back(std::move(block));
  pointers_.push_back(pointer);
}

void BlockTable::Adopt(BlockId block) {
  pool_->Ref(block, retention_);
  Push({.id = block, .own = nullptr, .retention = retention_},
       pool_->data(block));
}

bool BlockTable::Append() {
  const BlockId block = kind_ == Kind::kPooled
                            ? pool_->Allocate(retention_)
                            : pool_->AllocateFree(retention_);
  if (block != kNoBlock) {
    Push({.id = block, .own = nullptr, .retention = retention_},
         pool_->data(block));
    return true;
  }
  if (kind_ == Kind::kPooled || !pool_->host_memory()) return false;
  AlignedBytes own = AllocateAligned(pool_->block_bytes());
  if (own == nullptr) return false;
  std::byte* const pointer = own.get();
  Push({.id = kNoBlock, .own = std::move(own), .retention = retention_},
       pointer);
  return true;
}

void BlockTable::Replace(int i, BlockId other) {
  pool_->Ref(other, blocks_[i].retention);
  pool_->Unref(blocks_[i].id, BlockPool::Touch::kYes, blocks_[i].retention);
  blocks_[i].id = other;
  pointers_[i] = pool_->data(other);
}

void BlockTable::MarkSession(int first) {
  for (int i = first; i < size(); ++i) {
    if (blocks_[i].id != kNoBlock) pool_->MarkSession(blocks_[i].id);
  }
}

void BlockTable::Reclass(int first, int last, RetentionClass c) {
  for (int i = first; i < last; ++i) {
    if (blocks_[i].id != kNoBlock) {
      pool_->Reclass(blocks_[i].id, blocks_[i].retention, c);
    }
    blocks_[i].retention = c;
  }
}

void BlockTable::Truncate(int blocks) {
  // Tail first: the head of a chain is then its last used block, and free
  // blocks return to the stack in the order they had.
  const auto touch =
      kind_ == Kind::kPooled ? BlockPool::Touch::kYes : BlockPool::Touch::kNo;
  while (size() > blocks) {
    const Block& last = blocks_.back();
    if (last.id != kNoBlock) pool_->Unref(last.id, touch, last.retention);
    blocks_.pop_back();
    pointers_.pop_back();
  }
}

}  // namespace holdfast::engine
