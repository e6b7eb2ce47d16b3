#include "engine/resume/sequence.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "shared/cache_layout.h"

namespace holdfast::engine {

void Sequence::Append(std::span<const std::int32_t> more,
                      Provenance provenance) {
  const int first = rows();
  if (provenance == Provenance::kSession) taint = std::min(taint, first);
  ids.insert(ids.end(), more.begin(), more.end());
  state_rows = rows();
  if (taint == kUntainted) return;
  table.MarkSession(first / kBlockTokens);
  if (launches.empty()) launches_from = first;
  launches.push_back(rows());
}

void PublishBlocks(BlockPool& pool, const GridRule& rule, Sequence& sequence) {
  const int shared =
      rule.SharedBelow(std::min(sequence.rows(), sequence.taint));
  std::vector<PrefixKey> keys;
  ExtendPrefixKeys(sequence.root, std::span(sequence.ids).first(shared), keys);
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
