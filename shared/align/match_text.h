// A text that was sent against the client's copy of it.
#ifndef HOLDFAST_SHARED_ALIGN_MATCH_TEXT_H_
#define HOLDFAST_SHARED_ALIGN_MATCH_TEXT_H_

#include <string_view>

#include "shared/align/record.h"

namespace holdfast::align {

struct TextMatch {
  bool equal = false;        // under the rules below, and only if it is:
  bool white_space = false;  // a gap held other white space
  bool newline = false;      // one newline more or less at the end
};

// Equal byte for byte, but for the white space (space, tab, CR, LF) in gaps and
// for one newline at the end of either.
TextMatch MatchText(const SentText& sent, std::string_view client);

}  // namespace holdfast::align

#endif  // HOLDFAST_SHARED_ALIGN_MATCH_TEXT_H_
