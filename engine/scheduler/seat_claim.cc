#include "engine/scheduler/seat_claim.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/anchors/thinning.h"
#include "engine/retention/cut.h"
#include "engine/retention/policy.h"
#include "engine/scheduler/session_spill.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

// `sequence` goes on with `before`, but may have been resumed from somewhere
// else. An anchor in the middle of a chunk belongs to the launch that made its
// rows.
void TakeAnchors(const Sequence& before, const GridRule& rule,
                 Sequence& sequence) {
  for (const AnchorRef& anchor : before.anchors) {
    const int position = anchor->position;
    if (anchor->provenance != Provenance::kGrid ||
        sequence.ProvenanceAt(position) != Provenance::kGrid ||
        !rule.SharedAt(position)) {
      continue;
    }
    const AnchorRef own = DeepestAnchor(sequence.anchors, position);
    if (own != nullptr && own->position == position) continue;
    InsertAnchor(sequence.anchors, anchor);
  }
}

}  // namespace

SeatClaim::SeatClaim(EngineState& state, Seat& seat, const Request& request,
                     std::span<const KeyId> prompt, Sequence& sequence)
    : state_(state),
      seat_(seat),
      request_(request),
      prompt_(prompt),
      sequence_(sequence),
      scratch_(sequence.table.kind() == BlockTable::Kind::kScratch) {
  if (scratch_) return;
  guest_ = seat.resident &&
           IsGuest(static_cast<int>(prompt.size()),
                   seat.resident->prompt_tokens, state.retained.budgets());
  sequence.table.set_retention(guest_ ? RetentionClass::kGuest
                                      : RetentionClass::kResident);
}

bool SeatClaim::GoesOnWith(const Sequence& resident) const {
  return resident.root == sequence_.root &&
         SharedRows(prompt_, resident.ids) == resident.rows();
}

AnchorList SeatClaim::AnchorsOfOthers() const {
  AnchorList others;
  const auto add = [&](const Sequence* sequence) {
    if (sequence == &sequence_) return;
    others.insert(others.end(), sequence->anchors.begin(),
                  sequence->anchors.end());
  };
  for (const Sequence* resident : state_.Residents()) add(resident);
  for (const Sequence* running : state_.running) add(running);
  return others;
}

// Anchors that the request or another seat's resident has too stay theirs.
void SeatClaim::Leave(Seat& seat, const Displacement& by) {
  Sequence leaving = *std::exchange(seat.resident, std::nullopt);
  AnchorList heirs = AnchorsOfOthers();
  heirs.insert(heirs.end(), sequence_.anchors.begin(), sequence_.anchors.end());
  state_.retained.Displace(std::move(leaving), by, heirs);
}

bool SeatClaim::Displace() {
  if (scratch_ || guest_ || !seat_.resident || GoesOnWith(*seat_.resident)) {
    return false;
  }
  const Sequence& resident = *seat_.resident;
  Displacement by;
  if (resident.root == sequence_.root) {
    by.shared_rows = SharedRows(prompt_, resident.ids);
    by.same_session = !request_.session_key.empty() &&
                      request_.session_key == resident.session_key;
  }
  Leave(seat_, by);
  return true;
}

bool SeatClaim::CutResident() {
  if (!seat_.resident) return false;
  Sequence& resident = *seat_.resident;
  if (!std::exchange(overflowed_, true)) {
    ++state_.guest_overflows;
    if (resident.sections != nullptr &&
        resident.rows() >= state_.retained.budgets().spill_min_tokens) {
      SpillBeforeLoss(state_, resident);
    }
  }
  int anchors = 0;
  const bool cut = CutLastBlock(resident, state_.retained.rule(), anchors);
  state_.anchors_dropped.rows += anchors;
  if (resident.table.size() == 0) seat_.resident.reset();
  return cut;
}

bool SeatClaim::TakeFromResidents() {
  if (scratch_) return false;
  if (guest_ && CutResident()) return true;
  if (Seat* const other = state_.OldestResident(&seat_); other != nullptr) {
    Leave(*other, {});
    return true;
  }
  if (!seat_.resident) return false;
  seat_.resident.reset();
  return true;
}

void SeatClaim::SpillAhead() {
  // One at a time: the next is asked for when that has ended.
  if (scratch_ || state_.tiering == nullptr ||
      state_.tiering->leases.awaited() > 0 ||
      !state_.tiering->waiting.empty() ||
      state_.pool.counts().free + state_.pool.counts().cached >
          BlocksToStageSpill(state_)) {
    return;
  }
  if (Displace() || state_.retained.WarnNext() || guest_) return;
  Seat* const other = state_.OldestResident(&seat_);
  if (other == nullptr ||
      other->resident->rows() < state_.retained.budgets().spill_min_tokens) {
    return;
  }
  Leave(*other, {});
  state_.retained.WarnNext();
}

void SeatClaim::Pause() {
  if (scratch_ || sequence_.rows() == 0) return;
  PublishBlocks(state_.pool, state_.rule, sequence_);
  if (!sequence_.HasEnd()) sequence_.sections.reset();
  sequence_.prompt_tokens = static_cast<int>(prompt_.size());
  sequence_.head = request_.head;
  state_.retained.Displace(std::move(sequence_), {}, AnchorsOfOthers());
}

void SeatClaim::Keep() {
  if (!sequence_.HasEnd()) sequence_.sections.reset();
  sequence_.prompt_tokens = static_cast<int>(prompt_.size());
  sequence_.head = request_.head;
  if (guest_) return state_.retained.KeepGuest(std::move(sequence_));
  if (seat_.resident) {
    const Sequence& before = *seat_.resident;
    const int shared = before.root == sequence_.root
                           ? SharedRows(sequence_.ids, before.ids)
                           : 0;
    if (shared == before.rows()) {
      TakeAnchors(before, state_.rule, sequence_);
      seat_.resident.reset();
    } else {
      Leave(seat_,
            {.shared_rows = shared,
             .same_session = !request_.session_key.empty() &&
                             request_.session_key == before.session_key});
    }
  }
  state_.retained.Inherit(sequence_);
  ThinAnchors();
  seat_.resident = std::move(sequence_);
  seat_.last_use = state_.NextUse();
}

// What came back from the park may be more than residents' slots hold.
void SeatClaim::ThinAnchors() {
  AnchorList& anchors = sequence_.anchors;
  const int over = state_.anchor_slots.live(RetentionClass::kResident) -
                   state_.anchor_slots.capacity();
  if (over <= 0) return;
  const int grid = static_cast<int>(state_.model.layout().grid_tokens);
  const int keep = std::max(0, static_cast<int>(anchors.size()) - over);
  const auto spots =
      SurvivingSpots(SpotsOf(anchors, grid), keep, sequence_.rows());
  std::erase_if(anchors, [&spots](const AnchorRef& anchor) {
    return std::ranges::find(spots, anchor->position, &AnchorSpot::position) ==
           spots.end();
  });
  state_.anchors_dropped.budget += over;
}

}  // namespace holdfast::engine
