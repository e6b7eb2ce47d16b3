#include "engine/cache/lending.h"

namespace holdfast::engine {

std::optional<std::vector<BlockId>> Lending::Lend(
    std::span<const BlockId> blocks) {
  if (!copies_) {
    for (const BlockId block : blocks) pool_.Ref(block);
    return std::vector<BlockId>(blocks.begin(), blocks.end());
  }
  std::vector<BlockId> lent;
  // Not one of them when not all fit: a part is of no use.
  if (copies_->counts().free < static_cast<int>(blocks.size())) {
    return std::nullopt;
  }
  for (const BlockId block : blocks) {
    lent.push_back(copies_->AllocateFree());
    backend_->Read(pool_.data(block), pool_.block_bytes(),
                   copies_->data(lent.back()));
  }
  if (!backend_->Synchronize().ok()) {
    Release(lent);
    return std::nullopt;
  }
  return lent;
}

void Lending::Release(std::span<const BlockId> lent) {
  for (const BlockId block : lent) pool().Unref(block, BlockPool::Touch::kNo);
}

}  // namespace holdfast::engine
