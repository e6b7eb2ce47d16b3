// The tokens of one answer: how each is chosen, and when there are no more.
#ifndef HOLDFAST_ENGINE_SCHEDULER_ANSWER_TOKENS_H_
#define HOLDFAST_ENGINE_SCHEDULER_ANSWER_TOKENS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/output/stop_matcher.h"
#include "engine/output/thinking_budget.h"
#include "engine/scheduler/engine_state.h"
#include "engine/scheduler/request.h"
#include "kernels/sampling/token_choice.h"

namespace holdfast::engine {

// The engine thread's. Arguments outlive it.
class AnswerTokens {
 public:
  AnswerTokens(EngineState& state, const Request& request, EventSink& sink)
      : state_(state),
        request_(request),
        sink_(sink),
        stops_(request.stop_strings),
        budget_(request.thinking) {}

  // How the backend is to choose the next token; none: the host does, from its
  // logits.
  std::optional<kernels::TokenChoice> BackendsChoice() const;
  // The logits are wanted although the backend chooses.
  bool wants_logits() const { return request_.top_logprobs.has_value(); }

  // No token comes until the request is cancelled.
  bool Holds() const;
  // Takes a token from the logits behind the last one, or the one that the
  // backend chose from them, and sends it. False when none follows, with the
  // reason in `result`: the last token of an answer is never forwarded. `stop`
  // says whether the request was cancelled.
  bool Next(std::span<const float> logits, std::optional<std::int32_t> chosen,
            const std::function<bool()>& stop, Result& result);

  const std::vector<std::int32_t>& ids() const { return ids_; }
  // What comes behind those, whatever the model says.
  std::span<const std::int32_t> Ahead() const { return budget_.Ahead(); }

 private:
  bool ForcedEnd() const;
  bool AtLimit(Result& result) const;
  OutputToken Choose(std::span<const float> logits,
                     std::optional<std::int32_t> chosen, Result& result);
  // A tag's token is its tag.
  std::string_view ThinkingText(std::int32_t id) const;
  // Of forced ids: those that the budget's words stand for.
  void SkipForcedThinking();

  EngineState& state_;
  const Request& request_;
  EventSink& sink_;
  StopMatcher stops_;
  ThinkingBudget budget_;
  bool closing_ = false;    // the budget's words have begun
  std::size_t forced_ = 0;  // of the forced ids, taken or skipped
  std::vector<std::int32_t> ids_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_ANSWER_TOKENS_H_
