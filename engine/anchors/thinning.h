// Which anchors of a conversation are kept when not all can be.
#ifndef HOLDFAST_ENGINE_ANCHORS_THINNING_H_
#define HOLDFAST_ENGINE_ANCHORS_THINNING_H_

#include <span>
#include <vector>

#include "engine/anchors/anchor.h"

namespace holdfast::engine {

inline constexpr int kKeptLineAnchors = 4;
inline constexpr int kKeptMessageAnchors = 2;

// A position that has an anchor or may get one. It may be several things.
struct AnchorSpot {
  int position = 0;
  bool line = false;
  bool message = false;
  bool prompt_end = false;
  bool branch = false;  // another request parts here
  bool turn = false;    // Request::turn
};

// The index of the spot to give up: the one without which the gap between its
// neighbours (the start, and `end` behind the last one) is smallest, the lowest
// of equals; never one with `kept` set, unless all have it: then the first.
// `spots` ascend and are not empty; `kept` has an entry for each.
int SpotToDrop(std::span<const int> spots, const std::vector<bool>& kept,
               int end);

// The spots that have an anchor when a prefill up to `end` is done: all, as far
// as `capacity` goes. Kept longest are the newest kKeptLineAnchors lines, the
// newest kKeptMessageAnchors messages, the newest turn's and the prompt's end;
// of the others goes what SpotToDrop names. Pure, so that a copy sure to go is
// never made.
std::vector<AnchorSpot> SurvivingSpots(std::vector<AnchorSpot> spots,
                                       int capacity, int end);

// What anchors that are there count as; `grid` is the distance of lines.
std::vector<AnchorSpot> SpotsOf(const AnchorList& anchors, int grid);

// Drops the anchor that nobody else holds whose removal leaves the smallest gap
// below `end`, none of those that are kept longest. False when there is none.
bool DropSpareAnchor(AnchorList& anchors, int grid, int end);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_ANCHORS_THINNING_H_
