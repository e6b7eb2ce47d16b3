// How the rows of a paused request were computed on a grid backend.
#ifndef HOLDFAST_ENGINE_SCHEDULER_LAUNCH_HISTORY_H_
#define HOLDFAST_ENGINE_SCHEDULER_LAUNCH_HISTORY_H_

#include <algorithm>
#include <vector>

#include "engine/pool/provenance.h"
#include "engine/resume/grid_rule.h"
#include "engine/resume/sequence.h"

namespace holdfast::engine {

// Rows of provenance `session` have other bits when they are launched together
// with other rows. A request that goes on with its conversation's and is put
// off may find some of them gone: it launches as the history says, and has the
// bits that it would have had. Of rows that were read from a tier it is not
// known, and they are computed as a prefill's.
class LaunchHistory {
 public:
  // Of what `sequence` loses. What is known of deeper rows stays.
  void Keep(const Sequence& sequence) {
    if (sequence.taint == kUntainted || !sequence.LaunchesKnown()) return;
    if (!ends_.empty() && ends_.back() >= sequence.rows()) return;
    taint_ = sequence.taint;
    const auto above =
        std::ranges::upper_bound(sequence.launches, sequence.rows());
    ends_.assign(sequence.launches.begin(), above);
  }
  // Where the launch ends that began at `position`; 0: there was none.
  int EndOf(int position, const GridRule& rule, int grid_tokens) const {
    if (ends_.empty() || position >= ends_.back()) return 0;
    if (position < taint_) {
      // Below, a cold run's.
      if (!rule.SharedAt(position)) return 0;
      return std::min((position / grid_tokens + 1) * grid_tokens, taint_);
    }
    const auto end = std::ranges::upper_bound(ends_, position);
    const bool began_here =
        position == taint_ || (end != ends_.begin() && *(end - 1) == position);
    return began_here ? *end : 0;
  }
  // Are the rows from `position` on, as far as they are known, `session`?
  bool Session(int position) const {
    return !ends_.empty() && position >= taint_ && position < ends_.back();
  }

 private:
  int taint_ = 0;
  std::vector<int> ends_;  // ascending, above the taint
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_LAUNCH_HISTORY_H_
