#include "engine/response/response_recorder.h"

#include <utility>

namespace holdfast::engine {

bool ResponseRecorder::OnToken(const OutputToken& token) {
  if (!too_long_) {
    response_.tokens.push_back(token);
    bytes_ += sizeof(OutputToken) +
              (token.logprobs ? token.logprobs->top.size() : 0) *
                  sizeof(TokenLogprob);
    // Not collected to its end only to be thrown away then.
    if (bytes_ > ResponseCache::kMaxResponseBytes) {
      too_long_ = true;
      response_.tokens = {};
    }
  }
  return to_->OnToken(token);
}

void ResponseRecorder::OnFinished(const Result& result) {
  const bool whole = result.reason == FinishReason::kStop ||
                     result.reason == FinishReason::kStopString ||
                     result.reason == FinishReason::kLength;
  if (whole && !too_long_ && result.as_cold) {
    response_.tokens.shrink_to_fit();
    response_.reason = result.reason;
    response_.stop_string_index = result.stop_string_index;
    response_.prompt_tokens = result.prompt_tokens;
    cache_.Add(key_, std::move(response_));
  }
  to_->OnFinished(result);
}

Result SendResponse(const Response& response, EventSink& to) {
  Result result;
  result.reason = response.reason;
  result.stop_string_index = response.stop_string_index;
  result.prompt_tokens = response.prompt_tokens;
  result.cache.source = CacheSource::kResponse;
  result.cache.resumed_at = response.prompt_tokens;
  result.cache.rows_of = {{CacheSource::kResponse, response.prompt_tokens}};
  to.OnStarted(result.cache, result.timing);
  for (const OutputToken& token : response.tokens) {
    if (!to.OnToken(token)) {
      result.reason = FinishReason::kError;
      result.error = "the client reads too slowly";
      break;
    }
    ++result.output_tokens;
  }
  return result;
}

}  // namespace holdfast::engine
