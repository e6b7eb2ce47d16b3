// What a conversation's record says of its tokens: what was sent to the client
// for each answer, and what was not.
#ifndef HOLDFAST_SHARED_ALIGN_RECORD_H_
#define HOLDFAST_SHARED_ALIGN_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace holdfast::align {

using TokenId = std::uint32_t;

// Why tokens of an answer were not sent.
enum class HiddenKind {
  kThinkingBudget,  // the server's own words that closed the thinking
  kStopString,      // withheld by a stop string
  kEndOfTurn,
};

struct HiddenSpan {
  HiddenKind kind = HiddenKind::kEndOfTurn;
  std::size_t begin = 0;  // tokens of the record
  std::size_t end = 0;
};

// A text as the client got it.
struct SentText {
  // The text of white-space-only tokens next to a hidden span; empty where
  // there were none. Any white space stands for it.
  struct Gap {
    std::size_t begin = 0;  // bytes of the text
    std::size_t end = 0;
  };
  std::string text = {};
  std::vector<Gap> gaps = {};  // ascending, disjoint
};

struct Call {
  std::string name;
  std::string arguments;  // JSON, as far as the model wrote it
};

// One answer in the record.
struct Turn {
  std::size_t begin = 0;        // the first token behind the answer's header
  std::size_t opening_end = 0;  // up to here it is the prompt's (<think>, ...)
  std::size_t end = 0;          // the last token that was sent, and no more
                                // hidden ones than those below
  std::size_t reasoning_end = 0;  // the first token behind it; 0: has none
  SentText reasoning = {};
  SentText content = {};
  std::vector<Call> calls = {};
  std::vector<HiddenSpan> hidden = {};  // ascending, within [begin, end)
};

// A conversation that was served: its prompts' and answers' tokens.
struct Record {
  // Forwarded up to `end`; perhaps one more that was sampled and is still to
  // be forwarded.
  std::vector<TokenId> ids;
  std::size_t end = 0;      // the end anchor
  std::vector<Turn> turns;  // ascending, within ids
};

}  // namespace holdfast::align

#endif  // HOLDFAST_SHARED_ALIGN_RECORD_H_
