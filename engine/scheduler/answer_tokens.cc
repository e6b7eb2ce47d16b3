#include "engine/scheduler/answer_tokens.h"

#include <algorithm>
#include <cstddef>

#include "engine/sampling/logprobs.h"

namespace holdfast::engine {
namespace {

// Ends the answer.
bool End(FinishReason reason, Result& result) {
  result.reason = reason;
  return false;
}

}  // namespace

bool AnswerTokens::AtLimit(Result& result) const {
  const std::size_t count = ids_.size();
  if (request_.forced && count >= request_.forced->size()) {
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

bool AnswerTokens::Next(std::span<const float> logits,
                        const std::function<bool()>& stop, Result& result) {
  if (AtLimit(result)) return false;
  if (stop()) return End(FinishReason::kCancelled, result);
  std::int32_t id =
      state_.sampler.Sample(logits, request_.prompt, ids_, request_.sampling);
  if (request_.forced) id = (*request_.forced)[ids_.size()];
  OutputToken token{.id = id, .logprobs = {}};
  if (request_.top_logprobs) {
    token.logprobs = ComputeLogprobs(logits, id, *request_.top_logprobs);
  }
  ids_.push_back(id);
  if (!sink_.OnToken(token)) {
    result.error = "the client reads too slowly";
    return End(FinishReason::kError, result);
  }
  if (!request_.ignore_eos &&
      std::ranges::count(state_.options.eos_ids, id) > 0) {
    return End(FinishReason::kStop, result);
  }
  if (const auto match = stops_.Append(state_.token_bytes.Of(id))) {
    result.stop_string_index = *match;
    return End(FinishReason::kStopString, result);
  }
  return !AtLimit(result);
}

}  // namespace holdfast::engine
