// One request from its resume to its last token.
#ifndef HOLDFAST_ENGINE_SCHEDULER_REQUEST_RUN_H_
#define HOLDFAST_ENGINE_SCHEDULER_REQUEST_RUN_H_

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/output/stop_matcher.h"
#include "engine/resume/plan.h"
#include "engine/resume/sequence.h"
#include "engine/scheduler/engine_state.h"
#include "engine/scheduler/request.h"

namespace holdfast::engine {

// Used once, on the engine thread.
class RequestRun {
 public:
  // `stop` is asked before each step whether the request was cancelled. All
  // arguments outlive the run.
  RequestRun(EngineState& state, const Request& request, EventSink& sink,
             double queue_ms, std::function<bool()> stop);

  // Runs the whole request and sends its events, all but the last one. A
  // request of the default cache mode that computed rows becomes the resident,
  // and its whole blocks enter the index, however it ended; only one that met a
  // failure of the model leaves nothing.
  Result Run();

 private:
  // They return false when the request has ended, with the reason in result_.
  bool Prefill();
  absl::Status Resume();
  // False, and the sequence is empty, when no tier serves.
  bool ResumeFromTiers();
  void ResumeInPlace();
  absl::Status AfterResume();
  ResumePlan Plan(int limit);
  bool AfterPrompt();
  void Decode();
  bool NextToken();

  // Forwards the rows of `ids` behind the sequence's. They are of `provenance`
  // if those below are `grid`.
  absl::Status Step(std::span<const std::int32_t> ids, bool logits,
                    Provenance provenance);
  bool HaveBlocks(int rows);
  absl::Status CheckFinite(bool logits) const;
  void End(FinishReason reason) { result_.reason = reason; }
  void Fail(const absl::Status& status);
  void SayTaint();
  void Keep();

  EngineState& state_;
  const Request& request_;
  EventSink& sink_;
  const std::function<bool()> stop_;
  const std::vector<KeyId> prompt_keys_;
  Sequence sequence_;
  std::vector<PrefixKey> block_keys_;  // of the prompt, when there are tiers
  PromptView prompt_view_;
  MissReason tier_miss_ = MissReason::kNone;
  StopMatcher stops_;
  std::vector<std::int32_t> output_;
  Result result_;
  bool model_failed_ = false;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_REQUEST_RUN_H_
