#include "gateway/service/answer_text.h"

#include <algorithm>
#include <iterator>
#include <optional>
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
    const bool in_reasoning = parser_.in_reasoning();
    if (in_reasoning) ++reasoning_tokens_;
    if (tokenizer_.IsEos(token.id()) && !ignore_eos_ && !token.hidden()) {
      Note(token, "");
      continue;
    }
    if (want_logprobs_ && !token.hidden()) {
      waiting_.push_back({text_in_, Logprobs(token)});
    }
    const std::string whole = token.hidden() ? HiddenWord(token) : Word(token);
    const std::string text = filter_.Push(whole);
    text_in_ += whole.size();
    text_out_ += text.size();
    if (text.empty()) continue;
    TakeWaiting();
    Parsed(parser_.Push(text), &part);
    if (in_reasoning && !parser_.in_reasoning()) sent_.ReasoningEnds();
  }
  return part;
}

AnswerText::Part AnswerText::Finish() {
  Part part;
  const std::string late = decoder_.Flush();
  sent_.MoreText(late.size());
  const std::string rest = filter_.Push(late) + filter_.Finish();
  Parsed(parser_.Push(rest), &part);
  Parsed(parser_.Finish(), &part);
  // Tokens of a stop string are not part of the answer.
  if (!filter_.stopped()) text_out_ = text_in_ + 1;
  TakeWaiting();
  std::move(in_text_.begin(), in_text_.end(),
            std::back_inserter(part.logprobs));
  in_text_.clear();
  return part;
}

void AnswerText::TakeWaiting() {
  const auto end = std::ranges::find_if(waiting_, [this](const Waiting& token) {
    return token.begin >= text_out_;
  });
  for (auto at = waiting_.begin(); at != end; ++at)
    in_text_.push_back(std::move(at->logprobs));
  waiting_.erase(waiting_.begin(), end);
}

// Some vocabularies call the tags special tokens, which are no text otherwise.
bool AnswerText::HasText(std::uint32_t id) const {
  return !tokenizer_.IsSpecial(id) ||
         parser_.ReadsTag(tokenizer_.TokenBytes(id));
}

std::string AnswerText::Word(const v1::OutputToken& token) {
  const std::uint32_t id = token.id();
  std::string text;
  if (!tokenizer_.IsSpecial(id) || !HasText(id)) {
    text = decoder_.Append(id);
  } else {
    text = decoder_.Flush();
    text += tokenizer_.TokenBytes(id);
  }
  Note(token, text);
  return text;
}

// What the model's last character lacks will not come any more: what there is
// of it is that token's text, not the hidden one's.
std::string AnswerText::HiddenWord(const v1::OutputToken& token) {
  std::string text = decoder_.Flush();
  sent_.MoreText(text.size());
  hidden_words_ += tokenizer_.TokenBytes(token.id());
  const std::string_view tag = hidden_words_.ends_with(answer::kThinkEnd)
                                   ? answer::kThinkEnd
                                   : std::string_view();
  Note(token, tag);
  text += tag;
  return text;
}

void AnswerText::Note(const v1::OutputToken& token, std::string_view text) {
  const std::uint32_t id = token.id();
  const bool blank = !text.empty() && text.find_first_not_of(" \t\r\n") ==
                                          std::string_view::npos;
  std::optional<align::HiddenKind> hidden;
  const bool ends = tokenizer_.IsEos(id) && !ignore_eos_;
  if (ends || !HasText(id)) hidden = align::HiddenKind::kEndOfTurn;
  if (token.hidden()) hidden = align::HiddenKind::kThinkingBudget;
  sent_.Token(text.size(), blank, hidden);
}

void AnswerText::Parsed(std::vector<answer::Piece> pieces, Part* part) {
  sent_.Pieces(pieces);
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
