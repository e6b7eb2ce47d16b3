#include "engine/retention/cut.h"

#include <algorithm>
#include <vector>

#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

int DropAnchorsAbove(AnchorList& anchors, int rows) {
  return static_cast<int>(std::erase_if(
      anchors, [rows](const AnchorRef& a) { return a->position > rows; }));
}

}  // namespace

int CutRows(Sequence& sequence, int rows, const ResumeRule& rule) {
  rows = std::min(rows, sequence.rows());
  if (rows < sequence.rows()) sequence.sections.reset();
  int dropped = 0;
  if (sequence.sections == nullptr) {
    rows = rule.grid.SharedBelow(std::min(rows, sequence.taint));
    dropped = DropAnchorsAbove(sequence.anchors, rows);
    if (rule.recurrent) {
      rows = sequence.anchors.empty() ? 0 : sequence.anchors.back()->position;
    }
  }
  sequence.table.Truncate((rows + kBlockTokens - 1) / kBlockTokens);
  sequence.ids.resize(rows);
  if (rows <= sequence.taint) sequence.taint = kUntainted;
  return dropped;
}

bool CutLastBlock(Sequence& sequence, const ResumeRule& rule, int& anchors) {
  if (sequence.table.size() == 0) return false;
  anchors +=
      CutRows(sequence, (sequence.table.size() - 1) * kBlockTokens, rule);
  return true;
}

}  // namespace holdfast::engine
