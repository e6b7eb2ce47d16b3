#include "gateway/service/answer_text.h"

#include <utility>

namespace holdfast::gateway {

AnswerText::AnswerText(const Tokenizer& tokenizer,
                       const openai::CommonRequest& request)
    : tokenizer_(tokenizer),
      ignore_eos_(request.ignore_eos),
      want_logprobs_(request.top_logprobs.has_value()),
      decoder_(tokenizer, /*skip_special=*/true),
      filter_(request.stop) {}

AnswerText::Piece AnswerText::Add(const v1::Tokens& tokens) {
  Piece piece;
  for (const v1::OutputToken& token : tokens.tokens()) {
    ids_.push_back(token.id());
    if (tokenizer_.IsEos(token.id()) && !ignore_eos_) continue;
    if (want_logprobs_) waiting_.push_back(Logprobs(token));
    const std::string text = filter_.Push(decoder_.Append(token.id()));
    piece.text += text;
    if (text.empty()) continue;
    for (openai::TokenLogprobs& logprobs : std::exchange(waiting_, {}))
      piece.logprobs.push_back(std::move(logprobs));
  }
  return piece;
}

AnswerText::Piece AnswerText::Finish() {
  Piece piece;
  piece.text = filter_.Push(decoder_.Flush());
  piece.text += filter_.Finish();
  // Tokens of a stop string are not part of the answer.
  if (!filter_.stopped()) piece.logprobs = std::exchange(waiting_, {});
  return piece;
}

openai::TokenLogprobs AnswerText::Logprobs(const v1::OutputToken& token) const {
  const auto candidate = [this](std::uint32_t id, float logprob) {
    return openai::Candidate{std::string(tokenizer_.TokenBytes(id)), logprob};
  };
  openai::TokenLogprobs logprobs;
  logprobs.sampled = candidate(token.id(), token.logprob());
  for (const v1::TokenLogprob& other : token.top())
    logprobs.top.push_back(candidate(other.id(), other.logprob()));
  return logprobs;
}

}  // namespace holdfast::gateway
