#include "engine/cache/lending.h"

namespace holdfast::engine {

std::optional<std::vector<BlockId>> Lending::Lend(
    std::span<const BlockId> blocks) {
  std::vector<BlockId> lent(blocks.begin(), blocks.end());
  if (copies_) {
    if (!IsMapped()) return Copy(blocks);
    // The reader waits for no work of ours: all that was to be written into the
    // blocks must be there before it is told of them.
    if (!backend_->Synchronize().ok()) return std::nullopt;
    for (BlockId& block : lent) block = numbers_.OfDevice(block);
  }
  for (const BlockId block : lent) numbers_.Ref(block);
  return lent;
}

std::optional<std::vector<BlockId>> Lending::Copy(
    std::span<const BlockId> blocks) {
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
  for (const BlockId block : lent) numbers_.Unref(block);
}

}  // namespace holdfast::engine
