#include "engine/retention/policy.h"

#include <algorithm>
#include <vector>

#include "engine/anchors/thinning.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {

bool IsGuest(int prompt_tokens, int resident_tokens,
             const RetentionBudgets& budgets) {
  return prompt_tokens <= budgets.guest_max_tokens &&
         std::int64_t{4} * prompt_tokens < resident_tokens;
}

int SharedRows(std::span<const KeyId> a, std::span<const KeyId> b) {
  return static_cast<int>(std::ranges::mismatch(a, b).in1 - a.begin());
}

int HeadRows(const Displacement& by, int known_head, int shareable_rows) {
  const bool compaction = by.same_session && by.shared_rows < kBlockTokens;
  const int head =
      compaction ? shareable_rows : std::max(by.shared_rows, known_head);
  const int blocks = (head + kBlockTokens - 1) / kBlockTokens;
  return std::min(blocks, shareable_rows / kBlockTokens) * kBlockTokens;
}

AnchorList SpreadAnchors(AnchorList anchors, int count, int end) {
  std::vector<int> positions;
  for (const AnchorRef& anchor : anchors) {
    positions.push_back(anchor->position);
  }
  while (static_cast<int>(anchors.size()) > count) {
    std::vector<bool> kept(positions.size());
    kept.back() = true;
    const int victim = SpotToDrop(positions, kept, end);
    anchors.erase(anchors.begin() + victim);
    positions.erase(positions.begin() + victim);
  }
  return anchors;
}

AnchorList NewestAnchors(const AnchorList& anchors, int count) {
  const auto n = std::min(anchors.size(), static_cast<std::size_t>(count));
  return {anchors.end() - static_cast<std::ptrdiff_t>(n), anchors.end()};
}

AnchorRef TurnAnchor(const AnchorList& anchors) {
  for (auto it = anchors.rbegin(); it != anchors.rend(); ++it) {
    if ((*it)->turn) return *it;
  }
  return nullptr;
}

AnchorList ParkedAnchors(const AnchorList& anchors, int count) {
  AnchorList kept = NewestAnchors(anchors, count);
  const AnchorRef turn = TurnAnchor(anchors);
  if (turn != nullptr && !kept.empty() &&
      turn->position < kept.front()->position) {
    kept.front() = turn;
  }
  return kept;
}

}  // namespace holdfast::engine
