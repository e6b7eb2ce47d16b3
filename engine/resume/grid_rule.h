// What a backend's exactness means for resuming and sharing.
#ifndef HOLDFAST_ENGINE_RESUME_GRID_RULE_H_
#define HOLDFAST_ENGINE_RESUME_GRID_RULE_H_

#include "engine/pool/provenance.h"
#include "kernels/backend.h"

namespace holdfast::engine {

// On a row-invariant backend any split of a prompt gives the same bits, so all
// rows are `grid`. On a grid backend a row's bits depend on the launch that
// computed it: a cold run launches each chunk, from one grid line to the next
// or to the prompt's end, by itself, and only what was launched like that is
// `grid`. A part of a chunk is what a cold run of a longer prompt does not
// launch, so only whole chunks are shared.
class GridRule {
 public:
  GridRule(kernels::Exactness exactness, int grid_tokens)
      : any_split_(exactness == kernels::Exactness::kRowInvariant),
        grid_tokens_(grid_tokens) {}

  bool any_split() const { return any_split_; }
  // Of one prefill step that starts at `position`, on top of `grid` rows.
  Provenance OfPrefill(int position) const {
    return SharedAt(position) ? Provenance::kGrid : Provenance::kSession;
  }
  Provenance OfDecode() const {
    return any_split_ ? Provenance::kGrid : Provenance::kSession;
  }
  // The deepest position, at or below `position`, at which any prompt that
  // begins with the rows below it has the same state there.
  int SharedBelow(int position) const {
    return any_split_ ? position : position / grid_tokens_ * grid_tokens_;
  }
  bool SharedAt(int position) const {
    return SharedBelow(position) == position;
  }

 private:
  bool any_split_;
  int grid_tokens_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RESUME_GRID_RULE_H_
