#include "engine/scheduler/prefill_anchors.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/anchors/anchor_slots.h"
#include "engine/retention/policy.h"

namespace holdfast::engine {
namespace {

// Every position of a prompt that may have an anchor, the inherited ones
// included.
std::vector<AnchorSpot> AllSpots(const EngineState& state,
                                 const Sequence& sequence, int prompt_tokens,
                                 std::span<const int> messages, int turn,
                                 bool restored) {
  const int start = sequence.rows();
  std::map<int, AnchorSpot> spots;
  const auto at = [&spots](int position) -> AnchorSpot& {
    AnchorSpot& spot = spots[position];
    spot.position = position;
    return spot;
  };
  for (const AnchorRef& anchor : sequence.anchors) at(anchor->position);
  if (restored) at(start);
  const auto& layout = state.model.layout();
  const int grid = static_cast<int>(layout.grid_tokens);
  if (layout.Recurrent()) {
    for (int line = (start / grid + 1) * grid; line <= prompt_tokens;
         line += grid) {
      at(line);
    }
    // More of them than slots are not worth a look.
    const std::size_t newest =
        std::min<std::size_t>(messages.size(), kMaxAnchorSlots);
    for (int position : messages.last(newest)) {
      if (!state.rule.any_split()) break;
      if (position > start || spots.contains(position)) {
        at(position).message = true;
        at(position).turn = position == turn;
      }
    }
  }
  at(prompt_tokens).prompt_end = true;
  std::vector<AnchorSpot> all;
  for (auto& [position, spot] : spots) {
    spot.line = position % grid == 0;
    all.push_back(spot);
  }
  return all;
}

// A guest's prompt is a whole conversation most often, and the next of its kind
// has the same instructions: it parts in a message, where the largest gap is.
std::vector<AnchorSpot> GuestSpots(std::vector<AnchorSpot> all,
                                   int prompt_tokens) {
  const bool messages = std::ranges::any_of(all, &AnchorSpot::message);
  std::erase_if(all, [messages](const AnchorSpot& spot) {
    return messages && !spot.message && !spot.prompt_end;
  });
  std::vector<int> positions;
  std::vector<bool> kept;
  for (const AnchorSpot& spot : all) {
    positions.push_back(spot.position);
    kept.push_back(spot.prompt_end);
  }
  while (all.size() > kGuestAnchors) {
    const int victim = SpotToDrop(positions, kept, prompt_tokens);
    all.erase(all.begin() + victim);
    positions.erase(positions.begin() + victim);
    kept.erase(kept.begin() + victim);
  }
  return all;
}

AnchorKind KindOf(const AnchorSpot& spot) {
  if (spot.prompt_end) return AnchorKind::kPromptEnd;
  if (spot.message) return AnchorKind::kMessage;
  return spot.branch ? AnchorKind::kBranch : AnchorKind::kLine;
}

}  // namespace

PrefillAnchors::PrefillAnchors(EngineState& state, Sequence& sequence,
                               int prompt_tokens, std::span<const int> messages,
                               int turn, bool restored)
    : state_(state), sequence_(sequence), prompt_tokens_(prompt_tokens) {
  if (sequence.table.kind() == BlockTable::Kind::kScratch) return;
  if (sequence.taint != kUntainted || !state.rule.SharedAt(sequence.rows())) {
    return;
  }
  takes_ = true;
  std::vector<AnchorSpot> all =
      AllSpots(state, sequence, prompt_tokens, messages, turn, restored);
  if (guest()) {
    // What it has inherited stays others', and costs the guest nothing.
    std::erase_if(all, [&sequence](const AnchorSpot& spot) {
      return spot.position <= sequence.rows();
    });
    wanted_ = GuestSpots(std::move(all), prompt_tokens);
    return;
  }
  wanted_ = SurvivingSpots(std::move(all), state.anchor_slots.capacity(),
                           prompt_tokens);
  for (const AnchorRef& anchor : sequence.anchors) {
    const auto spot =
        std::ranges::find(wanted_, anchor->position, &AnchorSpot::position);
    if (spot == wanted_.end()) {
      doomed_.push_back(anchor);
    } else {
      wanted_.erase(spot);
    }
  }
}

void PrefillAnchors::AlsoAt(int position) {
  if (!takes_ || position <= sequence_.rows() || position >= prompt_tokens_) {
    return;
  }
  const auto place =
      std::ranges::lower_bound(wanted_, position, {}, &AnchorSpot::position);
  if (place != wanted_.end() && place->position == position) return;
  wanted_.insert(place, {.position = position, .branch = true});
}

int PrefillAnchors::NextStop() const {
  return wanted_.empty() ? prompt_tokens_ : wanted_.front().position;
}

bool PrefillAnchors::Reached() {
  const int position = sequence_.rows();
  if (wanted_.empty() || wanted_.front().position != position) {
    return false;
  }
  const AnchorSpot spot = wanted_.front();
  wanted_.erase(wanted_.begin());
  if (!sequence_.HasEnd()) return false;  // resumed here on rows alone
  if (!guest() && !MakeRoom()) return false;
  AnchorRef anchor = state_.anchor_slots.Take(
      position, KindOf(spot), sequence_.ProvenanceAt(position),
      sequence_.sections.get(), sequence_.table.retention(), spot.turn);
  if (anchor == nullptr) return false;
  InsertAnchor(sequence_.anchors, std::move(anchor));
  return true;
}

bool PrefillAnchors::guest() const {
  return sequence_.table.retention() == RetentionClass::kGuest;
}

// Other conversations' go before what the request itself has inherited: they
// share nothing that is dropped here.
bool PrefillAnchors::MakeRoom() {
  while (state_.anchor_slots.full()) {
    const bool dropped = DropOfResidents() || DropDoomed();
    if (!dropped) return false;
    ++state_.anchors_dropped.budget;
  }
  return true;
}

// Of the resident used longest ago that has one to give.
bool PrefillAnchors::DropOfResidents() {
  std::vector<Seat*> seats;
  for (Seat& seat : state_.seats) {
    if (seat.resident) seats.push_back(&seat);
  }
  std::ranges::sort(seats, {}, &Seat::last_use);
  const int grid = static_cast<int>(state_.model.layout().grid_tokens);
  return std::ranges::any_of(seats, [grid](Seat* seat) {
    return DropSpareAnchor(seat->resident->anchors, grid,
                           seat->resident->rows());
  });
}

bool PrefillAnchors::DropDoomed() {
  if (doomed_.empty()) return false;
  const AnchorList gone = {std::move(doomed_.back())};
  doomed_.pop_back();
  sequence_.anchors = AnchorsWithout(sequence_.anchors, gone);
  for (Seat& seat : state_.seats) {
    if (!seat.resident) continue;
    seat.resident->anchors = AnchorsWithout(seat.resident->anchors, gone);
  }
  return true;
}

}  // namespace holdfast::engine
