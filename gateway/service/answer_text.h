// From the engine's tokens to what a client sees of them.
#ifndef HOLDFAST_GATEWAY_SERVICE_ANSWER_TEXT_H_
#define HOLDFAST_GATEWAY_SERVICE_ANSWER_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/answer/answer_parser.h"
#include "gateway/answer/piece.h"
#include "gateway/answer/sent_form.h"
#include "gateway/openai/request.h"
#include "gateway/openai/response.h"
#include "gateway/openai/stop_filter.h"
#include "gateway/tokenizer/stream_decoder.h"
#include "gateway/tokenizer/tokenizer.h"
#include "holdfast/v1/engine.pb.h"

namespace holdfast::gateway {

// Whole characters, nothing from a stop string on, no end-of-turn token, taken
// apart into reasoning, text and tool calls. The tokenizer must outlive it. Not
// thread-safe.
class AnswerText {
 public:
  // What can be sent now. Log-probabilities (when asked for) come with the
  // pieces that their token completes.
  struct Part {
    std::vector<answer::Piece> pieces;
    std::vector<openai::TokenLogprobs> logprobs;
  };

  AnswerText(const Tokenizer& tokenizer, const openai::CommonRequest& request,
             answer::AnswerParser parser);

  Part Add(const v1::Tokens& tokens);
  // After the last token: what was kept back.
  Part Finish();

  // Everything the engine sampled, end-of-turn token included.
  const std::vector<std::uint32_t>& ids() const { return ids_; }
  // How many of them came before the reasoning's end.
  std::uint32_t reasoning_tokens() const { return reasoning_tokens_; }
  bool has_calls() const { return has_calls_; }
  // What the client gets, against the tokens.
  const answer::SentForm& sent() const { return sent_; }

 private:
  openai::TokenLogprobs Logprobs(const v1::OutputToken& token) const;
  // The text that a token gives, noted.
  std::string Word(const v1::OutputToken& token);
  // Of the thinking budget's words: nothing but the tag that they complete.
  std::string HiddenWord(const v1::OutputToken& token);
  // Its text belongs to the answer.
  bool HasText(std::uint32_t id) const;
  void Note(const v1::OutputToken& token, std::string_view text);
  // Lets go of those whose text has begun to leave the filter.
  void TakeWaiting();
  void Parsed(std::vector<answer::Piece> pieces, Part* part);

  const Tokenizer& tokenizer_;
  const bool ignore_eos_;
  const bool want_logprobs_;
  StreamDecoder decoder_;
  openai::StopFilter filter_;
  answer::AnswerParser parser_;
  answer::SentForm sent_;
  std::string hidden_words_;  // so far
  std::vector<std::uint32_t> ids_;
  std::uint32_t reasoning_tokens_ = 0;
  bool has_calls_ = false;
  // What the stop filter got and what it let through, in bytes.
  std::size_t text_in_ = 0;
  std::size_t text_out_ = 0;
  struct Waiting {
    std::size_t begin = 0;  // of the token's text in what the filter got
    openai::TokenLogprobs logprobs;
  };
  std::vector<Waiting> waiting_;                // for their text
  std::vector<openai::TokenLogprobs> in_text_;  // for a piece
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_ANSWER_TEXT_H_
