// A copy of a sequence's sections at one position: where it can be resumed.
#ifndef HOLDFAST_ENGINE_ANCHORS_ANCHOR_H_
#define HOLDFAST_ENGINE_ANCHORS_ANCHOR_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/pool/provenance.h"
#include "engine/pool/retention_class.h"

namespace holdfast::engine {

// Why an anchor was taken, or what was resumed at.
enum class AnchorKind {
  kLine,       // a grid line that a prefill passed
  kMessage,    // just before a user message or an assistant header
  kPromptEnd,  // behind a prompt's last row
  kEnd,        // behind the last row that a request forwarded
  kBranch,     // where a request parts from another that runs
};
inline constexpr int kAnchorKinds = 5;
const char* AnchorKindName(AnchorKind kind);

// Never changed once it is made, but for who pays for it. Whose rows it belongs
// to is the holder's to know: a Sequence, which has the key ids
// below `position`.
struct Anchor {
  int position = 0;  // rows below it
  AnchorKind kind = AnchorKind::kLine;
  Provenance provenance = Provenance::kGrid;
  bool turn = false;  // Request::turn of the prompt that it was taken in
  // As a model takes them (SectionOffsets). The slot's: AnchorSlots.
  const std::byte* sections = nullptr;
  // Who pays for it. AnchorSlots changes it, so that its counts are right.
  mutable RetentionClass charged = RetentionClass::kResident;
};

// While a request runs it may share anchors with the conversation it resumed;
// between requests each anchor has one holder.
using AnchorRef = std::shared_ptr<const Anchor>;
// Of one sequence, by ascending position, at most one at each.
using AnchorList = std::vector<AnchorRef>;

// The deepest anchor at or below `position`; null when there is none.
AnchorRef DeepestAnchor(const AnchorList& anchors, int position);
// Keeps the order. There must be none at this position.
void InsertAnchor(AnchorList& anchors, AnchorRef anchor);
// The anchors of `anchors` that are not in `others`.
AnchorList AnchorsWithout(const AnchorList& anchors, const AnchorList& others);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_ANCHORS_ANCHOR_H_
