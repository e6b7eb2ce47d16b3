#include "gateway/service/answer_text.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace holdfast::gateway {

AnswerText::AnswerText(const Tokenizer& tokenizer,
                       const openai::CommonRequest& request,
                       answer::AnswerParser parser)
    : tokenizer_(tokenizer),
      ignore_eos_(request.ignore_eos),
      want_logprobs_(request.top_logprobs.has_value()),
      decoder_(tokenizer, /*skip_special=*/true),
      filter_(request.stop),
      parser_(std::move(parser)) {}

AnswerText::Part AnswerText::Add(const v1::Tokens& tokens) {
  Part part;
  for (const v1::OutputToken& token : tokens.tokens()) {
    ids_.push_back(token.id());
    if (parser_.in_reasoning()) ++reasoning_tokens_;
    if (tokenizer_.IsEos(token.id()) && !ignore_eos_) continue;
    if (want_logprobs_) waiting_.push_back(Logprobs(token));
    const std::string text = filter_.Push(TextOf(token.id()));
    if (text.empty()) continue;
    std::move(waiting_.begin(), waiting_.end(), std::back_inserter(in_text_));
    waiting_.clear();
    Parsed(parser_.Push(text), &part);
  }
  return part;
}

AnswerText::Part AnswerText::Finish() {
  Part part;
  const std::string rest = filter_.Push(decoder_.Flush()) + filter_.Finish();
  Parsed(parser_.Push(rest), &part);
  Parsed(parser_.Finish(), &part);
  // Tokens of a stop string are not part of the answer.
  if (!filter_.stopped())
    std::move(waiting_.begin(), waiting_.end(), std::back_inserter(in_text_));
  std::move(in_text_.begin(), in_text_.end(),
            std::back_inserter(part.logprobs));
  in_text_.clear();
  waiting_.clear();
  return part;
}

// Some vocabularies call the tags special tokens, which are no text otherwise.
std::string AnswerText::TextOf(std::uint32_t id) {
  const std::string_view bytes = tokenizer_.TokenBytes(id);
  if (!tokenizer_.IsSpecial(id) || !parser_.ReadsTag(bytes))
    return decoder_.Append(id);
  std::string text = decoder_.Flush();
  text += bytes;
  return text;
}

void AnswerText::Parsed(std::vector<answer::Piece> pieces, Part* part) {
  for (answer::Piece& piece : pieces) {
    has_calls_ = has_calls_ || piece.kind == answer::PieceKind::kCall;
    if (piece.text.empty()) continue;
    answer::Append(piece.kind, piece.text, piece.raw, &part->pieces);
    std::move(in_text_.begin(), in_text_.end(),
              std::back_inserter(part->logprobs));
    in_text_.clear();
  }
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
