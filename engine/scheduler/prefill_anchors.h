// The anchors that one prefill takes.
#ifndef HOLDFAST_ENGINE_SCHEDULER_PREFILL_ANCHORS_H_
#define HOLDFAST_ENGINE_SCHEDULER_PREFILL_ANCHORS_H_

#include <span>
#include <vector>

#include "engine/anchors/thinning.h"
#include "engine/resume/sequence.h"
#include "engine/scheduler/engine_state.h"

namespace holdfast::engine {

// Where a prompt gets anchors, decided before its first step: at its end and,
// for a recurrent model, at grid lines and, where any split is exact, at
// messages; none where the prefill's rows are of provenance `session`, for no
// request could resume there; less those that the
// thinning rule would drop again before the end. Used once, on the engine
// thread.
class PrefillAnchors {
 public:
  // `sequence` has been resumed; `messages` ascend: where the prompt's user
  // messages and assistant headers start; `turn`: Request::turn. A sequence
  // that leaves no trace gets no anchors. `restored`: where it was resumed
  // there is no anchor yet. Arguments outlive this, `messages` need not.
  PrefillAnchors(EngineState& state, Sequence& sequence, int prompt_tokens,
                 std::span<const int> messages, int turn, bool restored);

  // Another request parts from the prompt at `position`: an anchor there too.
  // Positions that have been passed, or get one in any case, change nothing.
  void AlsoAt(int position);
  // The next position at which a step must end: the deepest one for a prompt's
  // last step.
  int NextStop() const;
  // To be called before the first step and after each: takes the anchor of this
  // position, if there is to be one, and says whether it did. Room for it is
  // made first: anchors of other conversations go before any of this one's. An
  // anchor that finds no memory is not taken.
  bool Reached();

 private:
  bool guest() const;
  bool MakeRoom();
  bool DropOfResidents();
  bool DropDoomed();

  EngineState& state_;
  Sequence& sequence_;
  const int prompt_tokens_;
  bool takes_ = false;              // any at all
  std::vector<AnchorSpot> wanted_;  // ascending; not passed yet
  // Of those that were inherited, what the rule gives up.
  AnchorList doomed_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_PREFILL_ANCHORS_H_
