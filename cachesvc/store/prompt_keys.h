// Keys of a token sequence at any position.
#ifndef HOLDFAST_CACHESVC_STORE_PROMPT_KEYS_H_
#define HOLDFAST_CACHESVC_STORE_PROMPT_KEYS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "shared/cache_layout.h"
#include "shared/prefix_key.h"

namespace holdfast::cachesvc {

class PromptKeys {
 public:
  // `ids` must outlive it.
  PromptKeys(const PrefixKey& root, std::span<const KeyId> ids)
      : root_(root), ids_(ids) {
    ExtendPrefixKeys(root, ids, blocks_);
  }

  // Of the last whole block at or below `position`; the root below the first.
  const PrefixKey& BlockKey(std::uint64_t position) const {
    const std::uint64_t blocks = position / kBlockTokens;
    return blocks == 0 ? root_ : blocks_[blocks - 1];
  }
  // At `position` itself: inside a block, of the block's first rows.
  PrefixKey KeyAt(std::uint64_t position) const {
    const std::uint64_t whole = position / kBlockTokens * kBlockTokens;
    if (whole == position) return BlockKey(position);
    return ChainPrefixKey(BlockKey(position),
                          ids_.subspan(whole, position - whole));
  }
  std::span<const PrefixKey> block_keys() const { return blocks_; }

 private:
  const PrefixKey root_;
  const std::span<const KeyId> ids_;
  std::vector<PrefixKey> blocks_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_PROMPT_KEYS_H_
