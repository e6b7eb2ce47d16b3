// One request from its resume to its last token, step by step.
#ifndef HOLDFAST_ENGINE_SCHEDULER_REQUEST_RUN_H_
#define HOLDFAST_ENGINE_SCHEDULER_REQUEST_RUN_H_

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/model.h"
#include "engine/resume/sequence.h"
#include "engine/scheduler/answer_tokens.h"
#include "engine/scheduler/engine_state.h"
#include "engine/scheduler/line_stores.h"
#include "engine/scheduler/prefill_anchors.h"
#include "engine/scheduler/request.h"
#include "engine/scheduler/resumption.h"
#include "engine/scheduler/seat_claim.h"

namespace holdfast::engine {

// Used once, on the engine thread. The caller calls what the phase asks for
// until it is kEnded, then Finish. Sends every event but the last one.
class RequestRun {
 public:
  enum class Phase {
    kStart,    // Start()
    kPrefill,  // PrefillStep(): rows of the prompt are missing
    kDecode,   // DecodeStep(): a token was sent and is not forwarded yet
    kEnded,    // Finish()
  };

  // The request runs on `seat`. `stop` is asked before each step whether it was
  // cancelled. All arguments outlive the run.
  RequestRun(EngineState& state, Seat& seat, const Request& request,
             EventSink& sink, double queue_ms, std::function<bool()> stop);
  RequestRun(const RequestRun&) = delete;
  RequestRun& operator=(const RequestRun&) = delete;

  Phase phase() const { return phase_; }

  void Start();
  void PrefillStep();
  void DecodeStep();
  // A request of the default cache mode that computed rows becomes the seat's
  // resident or stays as its guest, and its whole blocks enter the index,
  // however it ended; only one that met a failure of the model leaves nothing.
  Result Finish();

  // Behind the last row that was forwarded, once the prompt was.
  std::span<const float> logits() const { return logits_; }

 private:
  using Clock = std::chrono::steady_clock;

  // What a prefill takes with it, besides rows.
  struct Prefill {
    Prefill(EngineState& state, const Request& request,
            const PromptView& prompt, Sequence& sequence, bool restored)
        : stores(state, request, prompt, sequence),
          anchors(state, sequence, static_cast<int>(request.prompt.size()),
                  request.messages, restored) {}
    LineStores stores;
    PrefillAnchors anchors;
  };

  absl::Status Resume();
  int rows_left() const { return result_.prompt_tokens - sequence_.rows(); }
  // The whole prompt is there.
  void PromptDone();
  absl::Status DigestPrompt();
  absl::Status DigestEnd();
  void SayTaint();
  void NextToken();

  // Forwards the rows of `ids` behind the sequence's. They are of `provenance`
  // if those below are `grid`.
  absl::Status Forward(std::span<const std::int32_t> ids, bool logits,
                       Provenance provenance);
  absl::Status CheckFinite(bool logits) const;
  void End(FinishReason reason);
  void Fail(const absl::Status& status);
  void Keep();
  void Record();

  EngineState& state_;
  Seat& seat_;
  const Request& request_;
  EventSink& sink_;
  const std::function<bool()> stop_;
  const std::vector<KeyId> prompt_keys_;
  Sequence sequence_;
  SeatClaim claim_;
  Resumption resumption_;
  std::optional<Prefill> prefill_;  // while it lasts
  AnswerTokens answer_;
  std::vector<float> logits_;
  Phase phase_ = Phase::kStart;
  Result result_;
  bool prompt_done_ = false;
  bool model_failed_ = false;
  Clock::time_point phase_start_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_REQUEST_RUN_H_
