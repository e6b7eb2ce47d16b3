// One tool call, read from an answer as it arrives. Internal to
// gateway/answer.
#ifndef HOLDFAST_GATEWAY_ANSWER_CALL_READER_H_
#define HOLDFAST_GATEWAY_ANSWER_CALL_READER_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/answer/answer_format.h"
#include "gateway/answer/piece.h"
#include "gateway/answer/tools.h"

namespace holdfast::answer {

// Until the function's name is known nothing is taken from the text, so that
// what turns out to be no call can be passed on as it is.
class CallReader {
 public:
  enum class Result {
    kMore,    // needs more text
    kDone,    // the text goes on behind the call's end (</tool_call> is left)
    kBroken,  // the text goes on with what is no call
  };
  virtual ~CallReader() = default;

  // Reads on. `text` starts, as long as the call is not announced, with what
  // came before its body; then where the last call of Read left it. What is
  // taken is erased. With `final` no more text comes.
  virtual Result Read(bool final, std::string* text,
                      std::vector<Piece>* pieces) = 0;
  // A kCall piece was given.
  bool announced() const { return announced_; }

 protected:
  CallReader() = default;

  // Moves the first `bytes` of the text into a piece.
  static void Take(PieceKind kind, std::string_view as, std::size_t bytes,
                   std::string* text, std::vector<Piece>* pieces) {
    Append(kind, as, std::string_view(*text).substr(0, bytes), pieces);
    text->erase(0, bytes);
  }

  bool announced_ = false;
};

// The body starts at `body`: behind <tool_call>. `tools` must outlive it.
std::unique_ptr<CallReader> MakeCallReader(CallSyntax syntax, std::size_t body,
                                           const Tools& tools);
std::unique_ptr<CallReader> MakeJsonCallReader(std::size_t body);
std::unique_ptr<CallReader> MakeXmlCallReader(std::size_t body,
                                              const Tools& tools);

// Whether a text begins with a tag, or may once it goes on.
enum class Match { kNo, kMaybe, kYes };
inline Match StartsWith(std::string_view text, std::string_view tag) {
  if (text.starts_with(tag)) return Match::kYes;
  return tag.starts_with(text) ? Match::kMaybe : Match::kNo;
}

// The length of the longest end of `text` that begins `tag`, without being it.
inline std::size_t PartialTag(std::string_view text, std::string_view tag) {
  std::size_t length = std::min(text.size(), tag.size() - 1);
  while (!text.ends_with(tag.substr(0, length))) --length;
  return length;
}

inline bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
inline std::size_t SkipSpace(std::string_view text, std::size_t at) {
  while (at < text.size() && IsSpace(text[at])) ++at;
  return at;
}

}  // namespace holdfast::answer

#endif  // HOLDFAST_GATEWAY_ANSWER_CALL_READER_H_
