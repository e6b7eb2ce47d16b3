#include "engine/resume/sequence.h"

#include <optional>
#include <span>
#include <vector>

#include "shared/cache_layout.h"

namespace holdfast::engine {

void PublishBlocks(BlockPool& pool, Sequence& sequence) {
  std::vector<PrefixKey> keys;
  ExtendPrefixKeys(sequence.root, sequence.ids, keys);
  std::optional<PrefixKey> parent;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const int n = static_cast<int>(i);
    const BlockId mine = sequence.table.block(n);
    const auto ids =
        std::span(sequence.ids).subspan(i * kBlockTokens, kBlockTokens);
    // Keys start at the root, so a chain without a parent starts at block 0.
    const BlockId holder = pool.Publish(mine, keys[i], parent, ids);
    if (holder == kNoBlock) return;
    if (holder != mine) sequence.table.Replace(n, holder);
    parent = keys[i];
  }
}

}  // namespace holdfast::engine
