// A client's copy of a conversation against its record: where the copy says
// what was sent, the record's tokens are served.
//
// Sampled tokens are often not the ones that a tokenizer makes of their text,
// servers hide tokens, and clients write answers again in their own way. So
// text is compared with the text that was sent, never with tokens made again.
// Pure functions; thread-safe.
#ifndef HOLDFAST_SHARED_ALIGN_ALIGN_H_
#define HOLDFAST_SHARED_ALIGN_ALIGN_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/align/record.h"

namespace holdfast::align {

// How a copy of an answer came to stand for other tokens than its own.
enum class Rule {
  kTokens,       // the same text in other tokens
  kHiddenSpan,   // tokens that were hidden from the client are put back
  kWhiteSpace,   // other white space next to a hidden span
  kReasoning,    // sent back without its reasoning
  kToolCalls,    // calls written again: other spacing, other order of keys
  kNewline,      // a newline more or less at a text's end
  kReplacement,  // U+FFFD where bytes were broken
};
inline constexpr int kRules = 7;
const char* RuleName(Rule rule);  // as the HTTP API says it: "hidden_span"

// An answer as the client sent it back.
struct ClientAnswer {
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
};

// A piece of the rendered prompt.
struct Segment {
  std::span<const TokenId> ids;
  // Set: all that stands between the header of this answer and the token that
  // ends its turn.
  const ClientAnswer* answer = nullptr;
};

// What the chat template prints of an answer at its place.
struct Printed {
  bool text = true;       // its content and calls
  bool reasoning = true;  // its reasoning, were it there
};
// Asked only of an answer that says what was sent in `turn`, and whose tokens
// are others.
using PrintedAs =
    std::function<Printed(const ClientAnswer& answer, const Turn& turn)>;

struct Alignment {
  std::vector<TokenId> ids;  // to be served
  std::size_t matched = 0;   // they begin with so many tokens of the record
  // All that was forwarded is in the prompt: it resumes at the end.
  bool at_end = false;
  std::vector<Rule> rules;  // used, ascending, each once; none: ids as rendered
};

// Serves the record's tokens for each answer that matches, up to the first
// difference; from there on the prompt is as it was rendered. A record's turn
// is matched where the prompts before it are equal token for token.
Alignment Align(const Record& record, std::span<const Segment> prompt,
                const PrintedAs& printed);

// The rules by which `client` says what was sent for `turn`; nothing: it does
// not. Whether hidden spans were put back and tokens differ is not looked at.
std::optional<std::vector<Rule>> MatchAnswer(const Turn& turn,
                                             const ClientAnswer& client);

}  // namespace holdfast::align

#endif  // HOLDFAST_SHARED_ALIGN_ALIGN_H_
