// Taking rows off the end of a sequence that nothing runs.
#ifndef HOLDFAST_ENGINE_RETENTION_CUT_H_
#define HOLDFAST_ENGINE_RETENTION_CUT_H_

#include "engine/resume/grid_rule.h"
#include "engine/resume/sequence.h"

namespace holdfast::engine {

// What makes rows worth keeping: a place to resume at, at or above them.
struct ResumeRule {
  GridRule grid;
  // The model has recurrent sections: only an anchor is such a place.
  bool recurrent = false;
};

// Keeps at most the first `rows` rows, and of them those that a request could
// still resume in: the state behind the last row is lost with that row, rows of
// provenance `session` serve through it alone, and a recurrent model's rows
// above the highest anchor serve nobody. Gives back the blocks and anchors of
// the others, tail first. Returns how many anchors went.
int CutRows(Sequence& sequence, int rows, const ResumeRule& rule);

// Takes the last block off, and what goes with it. False when there was none.
bool CutLastBlock(Sequence& sequence, const ResumeRule& rule, int& anchors);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RETENTION_CUT_H_
