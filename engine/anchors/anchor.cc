#include "engine/anchors/anchor.h"

#include <algorithm>
#include <utility>

#include "shared/check.h"

namespace holdfast::engine {
namespace {

bool Below(const AnchorRef& anchor, int position) {
  return anchor->position < position;
}

}  // namespace

const char* AnchorKindName(AnchorKind kind) {
  switch (kind) {
    case AnchorKind::kLine:
      return "line";
    case AnchorKind::kMessage:
      return "message";
    case AnchorKind::kPromptEnd:
      return "prompt_end";
    case AnchorKind::kBranch:
      return "branch";
    case AnchorKind::kEnd:
      break;
  }
  return "end";
}

AnchorRef DeepestAnchor(const AnchorList& anchors, int position) {
  const auto above =
      std::lower_bound(anchors.begin(), anchors.end(), position + 1, Below);
  return above == anchors.begin() ? nullptr : *std::prev(above);
}

void InsertAnchor(AnchorList& anchors, AnchorRef anchor) {
  const auto at =
      std::lower_bound(anchors.begin(), anchors.end(), anchor->position, Below);
  HF_CHECK(at == anchors.end() || (*at)->position > anchor->position);
  anchors.insert(at, std::move(anchor));
}

AnchorList AnchorsWithout(const AnchorList& anchors, const AnchorList& others) {
  AnchorList rest;
  for (const AnchorRef& anchor : anchors) {
    if (std::ranges::find(others, anchor) == others.end()) {
      rest.push_back(anchor);
    }
  }
  return rest;
}

}  // namespace holdfast::engine
