#include "engine/anchors/thinning.h"

#include <algorithm>
#include <limits>

#include "shared/check.h"

namespace holdfast::engine {
namespace {

// Which of the spots outlive the others.
std::vector<bool> Kept(const std::vector<AnchorSpot>& spots) {
  std::vector<bool> kept(spots.size());
  int lines = 0;  // seen from the end
  int messages = 0;
  int turns = 0;
  for (std::size_t i = spots.size(); i-- > 0;) {
    const AnchorSpot& spot = spots[i];
    lines += spot.line;
    messages += spot.message;
    turns += spot.turn;
    kept[i] = spot.prompt_end || (spot.line && lines <= kKeptLineAnchors) ||
              (spot.message && messages <= kKeptMessageAnchors) ||
              (spot.turn && turns == 1);
  }
  return kept;
}

}  // namespace

int SpotToDrop(std::span<const int> spots, const std::vector<bool>& kept,
               int end) {
  HF_CHECK(!spots.empty() && spots.size() == kept.size());
  int victim = 0;
  int smallest = std::numeric_limits<int>::max();
  for (std::size_t i = 0; i < spots.size(); ++i) {
    if (kept[i]) continue;
    const int before = i == 0 ? 0 : spots[i - 1];
    const int after = i + 1 == spots.size() ? end : spots[i + 1];
    if (after - before >= smallest) continue;
    smallest = after - before;
    victim = static_cast<int>(i);
  }
  return victim;
}

std::vector<AnchorSpot> SpotsOf(const AnchorList& anchors, int grid) {
  std::vector<AnchorSpot> spots;
  for (const AnchorRef& anchor : anchors) {
    spots.push_back({.position = anchor->position,
                     .line = anchor->position % grid == 0,
                     .message = anchor->kind == AnchorKind::kMessage,
                     .prompt_end = anchor->kind == AnchorKind::kPromptEnd,
                     .turn = anchor->turn});
  }
  return spots;
}

bool DropSpareAnchor(AnchorList& anchors, int grid, int end) {
  std::vector<bool> kept = Kept(SpotsOf(anchors, grid));
  std::vector<int> positions;
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    positions.push_back(anchors[i]->position);
    if (anchors[i].use_count() > 1) kept[i] = true;
  }
  if (std::ranges::find(kept, false) == kept.end()) return false;
  anchors.erase(anchors.begin() + SpotToDrop(positions, kept, end));
  return true;
}

std::vector<AnchorSpot> SurvivingSpots(std::vector<AnchorSpot> spots,
                                       int capacity, int end) {
  std::vector<bool> kept = Kept(spots);
  std::vector<int> positions;
  for (const AnchorSpot& spot : spots) positions.push_back(spot.position);
  while (static_cast<int>(spots.size()) > capacity) {
    const int victim = SpotToDrop(positions, kept, end);
    spots.erase(spots.begin() + victim);
    kept.erase(kept.begin() + victim);
    positions.erase(positions.begin() + victim);
  }
  return spots;
}

}  // namespace holdfast::engine
