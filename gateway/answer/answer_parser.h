// A model's answer taken apart while it arrives: reasoning, text, tool calls.
#ifndef HOLDFAST_GATEWAY_ANSWER_ANSWER_PARSER_H_
#define HOLDFAST_GATEWAY_ANSWER_ANSWER_PARSER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/answer/answer_format.h"
#include "gateway/answer/call_reader.h"
#include "gateway/answer/piece.h"
#include "gateway/answer/tools.h"

namespace holdfast::answer {

// Never fails and never loses a byte: what does not parse is content. How the
// text is cut does not change the pieces, but for where a piece ends. Text is
// kept back only while it may still become a tag (or the white space beside
// one), the head of a call up to its function's name, and a parameter of the
// XML syntax that is no string.
//
// A call that breaks off, by the answer's end or by text that is no call, is
// left as far as it came: its arguments are not closed, so that no client runs
// half a call. Not thread-safe.
class AnswerParser {
 public:
  // `in_reasoning`: the prompt has opened <think>. `tools` null: the request
  // has none, and calls are content.
  AnswerParser(const AnswerFormat& format, bool in_reasoning,
               std::shared_ptr<const Tools> tools);

  // `text` is whole characters.
  std::vector<Piece> Push(std::string_view text);
  // The end of the answer.
  std::vector<Piece> Finish();

  // It looks for this tag, so that its token must come as text.
  bool ReadsTag(std::string_view tag) const;
  // What comes next belongs to the reasoning, as far as is known.
  bool in_reasoning() const {
    return state_ == State::kReasoningStart || state_ == State::kReasoning;
  }

 private:
  enum class State {
    kStart,           // <think> may come
    kReasoningStart,  // white space behind <think>
    kReasoning,
    kReasoningEnd,  // white space behind </think>
    kContent,
    kCall,
    kCallEnd,  // </tool_call> is to come
  };

  std::vector<Piece> Run(bool final);
  // False: nothing can be done before more text comes.
  bool Step(bool final);
  bool StepStart(bool final);
  bool StepSpace(std::string_view space, State next);
  bool StepReasoning(bool final);
  bool StepContent(bool final);
  bool StepCall(bool final);
  bool StepCallEnd(bool final);
  // Moves the first `bytes` of the held text into a piece.
  void Take(PieceKind kind, std::size_t bytes);
  // A call's tag is at `tag`: takes the text before it.
  void BeginCall(std::size_t tag);

  const AnswerFormat format_;
  const std::shared_ptr<const Tools> tools_;
  State state_;
  std::string held_;
  std::vector<Piece> pieces_;
  std::size_t space_read_ = 0;  // of the white space behind a tag
  bool blank_ = true;           // no text since the content's, or a call's, end
  bool called_ = false;
  std::size_t call_tag_end_ = 0;  // in held_, while a call is not announced
  std::unique_ptr<CallReader> call_;
};

}  // namespace holdfast::answer

#endif  // HOLDFAST_GATEWAY_ANSWER_ANSWER_PARSER_H_
