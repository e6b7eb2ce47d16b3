#include "engine/scheduler/answer_tokens.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "engine/sampling/logprobs.h"

namespace holdfast::engine {
namespace {

// Ends the answer.
bool End(FinishReason reason, Result& result) {
  result.reason = reason;
  return false;
}

}  // namespace

bool AnswerTokens::ForcedEnd() const {
  return request_.forced && forced_ >= request_.forced->size() &&
         !budget_.Next();
}

bool AnswerTokens::Holds() const { return request_.hold && ForcedEnd(); }

bool AnswerTokens::AtLimit(Result& result) const {
  const std::size_t count = ids_.size();
  if (ForcedEnd() && !request_.hold) {
    result.reason = FinishReason::kStop;
    return true;
  }
  const std::size_t context = request_.prompt.size() + count;
  if (count < static_cast<std::size_t>(request_.max_tokens) &&
      context < static_cast<std::size_t>(state_.options.max_context)) {
    return false;
  }
  result.reason = FinishReason::kLength;
  return true;
}

std::optional<kernels::TokenChoice> AnswerTokens::BackendsChoice() const {
  if (!state_.backend.chooses_tokens() || request_.forced) return std::nullopt;
  return ChoiceFromLogits(request_.sampling, ids_.size());
}

OutputToken AnswerTokens::Choose(std::span<const float> logits,
                                 std::optional<std::int32_t> chosen,
                                 Result& result) {
  OutputToken token;
  if (const auto word = budget_.Next()) {
    if (!std::exchange(closing_, true)) SkipForcedThinking();
    token.id = *word;
    token.hidden = true;
  } else if (request_.forced) {
    token.id = (*request_.forced)[forced_++];
  } else if (chosen) {
    token.id = *chosen;
    ++result.chosen_by_backend;
  } else {
    token.id =
        state_.sampler.Sample(logits, request_.prompt, ids_, request_.sampling);
  }
  if (request_.top_logprobs && !token.hidden) {
    token.logprobs = ComputeLogprobs(logits, token.id, *request_.top_logprobs);
  }
  return token;
}

std::string_view AnswerTokens::ThinkingText(std::int32_t id) const {
  if (request_.thinking && id == request_.thinking->open_id) {
    return request_.thinking->open_tag;
  }
  if (request_.thinking && id == request_.thinking->close_id) {
    return request_.thinking->close_tag;
  }
  return state_.token_bytes.Of(id);
}

void AnswerTokens::SkipForcedThinking() {
  if (!request_.forced) return;
  std::string text;
  while (forced_ < request_.forced->size() &&
         text.find(request_.thinking->close_tag) == std::string::npos) {
    text += ThinkingText((*request_.forced)[forced_++]);
  }
}

bool AnswerTokens::Next(std::span<const float> logits,
                        std::optional<std::int32_t> chosen,
                        const std::function<bool()>& stop, Result& result) {
  if (AtLimit(result)) return false;
  if (stop()) return End(FinishReason::kCancelled, result);
  const OutputToken token = Choose(logits, chosen, result);
  const std::int32_t id = token.id;
  ids_.push_back(id);
  if (!sink_.OnToken(token)) {
    result.error = "the client reads too slowly";
    return End(FinishReason::kError, result);
  }
  if (!request_.ignore_eos && !token.hidden &&
      std::ranges::count(state_.options.eos_ids, id) > 0) {
    return End(FinishReason::kStop, result);
  }
  const std::string_view text = state_.token_bytes.Of(id);
  budget_.Token(ThinkingText(id));
  // Stop strings are looked for in what the client may get: of the budget's
  // words that is the tag that they complete.
  const bool words_end = token.hidden && !budget_.Next();
  const std::string_view seen = words_end      ? request_.thinking->close_tag
                                : token.hidden ? std::string_view()
                                               : text;
  if (const auto match = stops_.Append(seen)) {
    result.stop_string_index = *match;
    return End(FinishReason::kStopString, result);
  }
  return !AtLimit(result);
}

}  // namespace holdfast::engine
