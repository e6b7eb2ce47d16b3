// What a request does to the conversation that its seat has.
#ifndef HOLDFAST_ENGINE_SCHEDULER_SEAT_CLAIM_H_
#define HOLDFAST_ENGINE_SCHEDULER_SEAT_CLAIM_H_

#include <span>

#include "engine/resume/sequence.h"
#include "engine/scheduler/engine_state.h"
#include "engine/scheduler/request.h"
#include "engine/scheduler/seat.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {

// The engine thread's, while the request has the seat. Arguments outlive it.
class SeatClaim {
 public:
  // Decides whether the request is a guest of the seat's resident: then that
  // stays, and the request's rows are of the class kGuest.
  SeatClaim(EngineState& state, Seat& seat, const Request& request,
            std::span<const KeyId> prompt, Sequence& sequence);

  bool guest() const { return guest_; }

  // The request is sure to leave rows behind, or needs blocks: a resident that
  // it does not go on with leaves the seat and is kept as far as the budgets
  // go. False when there is none to displace.
  bool Displace();
  // Blocks are short, and nothing else can give one. A guest cuts the end of
  // the resident; another request displaces those of other seats, then its own.
  // False when there is nothing left.
  bool TakeFromResidents();
  // Before blocks are so short that a conversation about to lose rows could not
  // be spilled any more: sees to it that the next one to lose some has been.
  void SpillAhead();

  // The request gives its seat up before it has ended: its sequence, which is
  // used up, is kept as a conversation that was displaced, so that it goes on
  // from there.
  void Pause();
  // The request has ended and its whole blocks are in the index: its sequence
  // becomes the seat's resident or, a guest's, is kept as one.
  void Keep();

 private:
  bool GoesOnWith(const Sequence& resident) const;
  void Leave(Seat& seat, const Displacement& by);
  AnchorList AnchorsOfOthers() const;
  bool CutResident();
  void ThinAnchors();

  EngineState& state_;
  Seat& seat_;
  const Request& request_;
  const std::span<const KeyId> prompt_;
  Sequence& sequence_;
  bool scratch_;
  bool guest_ = false;
  bool overflowed_ = false;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_SEAT_CLAIM_H_
