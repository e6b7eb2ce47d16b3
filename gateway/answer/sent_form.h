// What of an answer the client got, told against the answer's tokens: the
// gateway's part of a session record.
#ifndef HOLDFAST_GATEWAY_ANSWER_SENT_FORM_H_
#define HOLDFAST_GATEWAY_ANSWER_SENT_FORM_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gateway/answer/piece.h"
#include "shared/align/record.h"

namespace holdfast::answer {

// Told of every token and of every piece of the answer, in order; the pieces
// may come later than their tokens. Not thread-safe.
class SentForm {
 public:
  // A token that gave so many bytes of text; `blank`: some, and nothing but
  // white space. `hidden`: the client gets none of it, but perhaps tags.
  void Token(std::size_t bytes, bool blank,
             std::optional<align::HiddenKind> hidden);
  // Text of the last token that came late.
  void MoreText(std::size_t bytes);
  void Pieces(std::span<const Piece> pieces);
  // The tokens so far are all up to the reasoning's end.
  void ReasoningEnds() { reasoning_end_ = tokens_.size(); }

  std::size_t tokens() const { return tokens_.size(); }

  struct Where {
    std::size_t begin = 0;   // behind the answer's header
    std::size_t prompt = 0;  // tokens of the prompt
    // The engine has ended the answer: it has forwarded all but the last token.
    bool ended = true;
  };
  // After the last token and piece. Text without a piece was withheld.
  align::Turn Finish(const Where& where) const;

 private:
  struct TokenText {
    std::size_t begin = 0;  // bytes of the answer's text
    std::size_t end = 0;
    bool blank = false;
    std::optional<align::HiddenKind> hidden;
  };
  struct Run {  // bytes of the answer that are bytes of a text
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t at = 0;  // where they are in the text
  };
  struct Text {
    std::string text;
    std::vector<Run> runs;
  };
  struct Gap {
    std::size_t begin = 0;  // bytes of the answer
    std::size_t end = 0;
  };

  std::vector<TokenText> WithWithheld() const;
  // Of a token that was withheld in part: where the white space begins that the
  // client got last of it.
  std::size_t LastSpace(const TokenText& token) const;
  std::vector<Gap> Gaps(const std::vector<TokenText>& tokens) const;
  void Add(const Piece& piece, Text* text);
  static align::SentText Sent(const Text& text, const std::vector<Gap>& gaps);

  std::vector<TokenText> tokens_;
  std::string sent_;  // of the answer's text, what came in pieces
  std::size_t reasoning_end_ = 0;
  Text reasoning_;
  Text content_;
  std::vector<align::Call> calls_;
};

}  // namespace holdfast::answer

#endif  // HOLDFAST_GATEWAY_ANSWER_SENT_FORM_H_
