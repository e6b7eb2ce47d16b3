// One request from its resume to its last token, step by step.
#ifndef HOLDFAST_ENGINE_SCHEDULER_REQUEST_RUN_H_
#define HOLDFAST_ENGINE_SCHEDULER_REQUEST_RUN_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "engine/resume/sequence.h"
#include "engine/scheduler/answer_tokens.h"
#include "engine/scheduler/block_supply.h"
#include "engine/scheduler/engine_state.h"
#include "engine/scheduler/launch_history.h"
#include "engine/scheduler/line_stores.h"
#include "engine/scheduler/prefill_anchors.h"
#include "engine/scheduler/request.h"
#include "engine/scheduler/resumption.h"
#include "engine/scheduler/seat.h"
#include "engine/scheduler/seat_claim.h"
#include "engine/scheduler/step_size.h"

namespace holdfast::engine {

// Used once, on the engine thread. The caller calls what the phase asks for
// until it is kEnded, then Finish. Sends every event but the last one.
//
// It can be paused between two steps and started again later: then it forwards
// what was lost meanwhile, computes the same bits as if nothing had happened,
// and samples behind the same boundary of prompt and output. Its client sees
// one stream. On a grid backend a prompt that goes on from its session's end
// has the same bits as long as its rows at the pause, or that end, are kept;
// else it is read again from a line, and only the tokens that were sent stay.
class RequestRun {
 public:
  enum class Phase {
    kStart,      // Start()
    kRestoring,  // RestoreStep(), when EngineState::bell rang: rows are being
                 // read
    kPrefill,    // Prepare(), PrefillStep(): rows are missing
    kDecode,  // Prepare(), DecodeRow(), Decoded(): a token was sent and is not
              // forwarded yet
    kHeld,    // nothing, until Cancel(): Request::hold
    kEnded,   // Finish()
  };

  // `stop` is asked before each step whether the request was cancelled. All
  // arguments outlive the run.
  RequestRun(EngineState& state, const Request& request, EventSink& sink,
             std::function<bool()> stop);
  ~RequestRun();
  RequestRun(const RequestRun&) = delete;
  RequestRun& operator=(const RequestRun&) = delete;

  Phase phase() const { return phase_; }

  // Where the pool alone lets it start now.
  int PlanInPlace() const { return resumption_.InPlacePosition(); }
  // Takes the seat, which outlives the run. Again after a Pause, on any seat.
  // `queue_ms`: since it came, for the first time.
  void Start(Seat& seat, double queue_ms);
  // Looks how far the reading is. When it failed, the next best place to start
  // from is tried, in the end what is in place.
  void RestoreStep();
  // Finds blocks for the next step, within `limits` when it is a prefill's.
  // kNone: the pool has none but those of requests that run.
  [[nodiscard]] Supply Prepare(const StepSize::Limits& limits = {});
  void PrefillStep();
  // For a Forward, perhaps together with others'; `Decoded` says how that went.
  // With a drafter it may have more rows than one: `step_rows`.
  model::SequenceRows DecodeRow();
  void Decoded(const absl::Status& status);
  // Another request waits for these rows: an anchor there, when it is reached.
  void AnchorAt(int position);
  // Leaves the seat, between two steps. What it has is kept as a conversation
  // that was displaced.
  void Pause();
  // It waits and was cancelled.
  void Cancel() { End(FinishReason::kCancelled); }
  // Its next step finds no blocks, and there is nobody to take them from.
  void OutOfBlocks();
  // A request of the default cache mode that computed rows becomes the seat's
  // resident or stays as its guest, and its whole blocks enter the index,
  // however it ended; only one that met a failure of the model leaves nothing.
  // Leaves the seat.
  Result Finish();

  // Of the whole prompt.
  std::span<const KeyId> prompt_keys() const { return prompt_keys_; }
  const Sequence& sequence() const { return sequence_; }
  // While it is restoring: the position that it will start from.
  int reads_to() const { return resuming().reads_to(); }
  // It leaves no trace.
  bool scratch() const {
    return sequence_.table.kind() == BlockTable::Kind::kScratch;
  }
  // Rows that it must have before it decodes.
  int target() const;
  // Of the step that was prepared.
  int step_rows() const { return step_rows_; }
  // Those last read: behind the last row that was forwarded, once the prompt
  // was, unless the backend chose the token.
  std::span<const float> logits() const { return logits_; }

 private:
  using Clock = std::chrono::steady_clock;

  // Its rows are what the caches gave.
  absl::Status Resumed(const CacheReport& report);
  // The conversation that a pause left still has all its rows and their end.
  bool OwnEndIsKept() const;
  absl::Status LogitsOfCachedPrompt();
  // What the cache gave: `report` says it of this start.
  void CountResume(const CacheReport& report);
  void TakeAnchors();
  int rows_left() const { return target() - sequence_.rows(); }
  // The next row is of the answer and was decoded before the pause.
  bool Replays() const;
  Resumption& resuming() { return again_ ? *again_ : resumption_; }
  const Resumption& resuming() const { return again_ ? *again_ : resumption_; }
  int PrefillRows(const StepSize::Limits& limits);
  void CountRows(int rows);
  // The whole prompt is there.
  void PromptDone();
  absl::Status DigestPrompt();
  absl::Status DigestEnd();
  void SayTaint();
  void GoOnAnswering();
  void NextToken();

  // A decode step may have more rows than the last token's: what is sure to
  // come behind it, or what a drafter guesses. Its rows are the sequence's up
  // to the first token that the model takes itself or that ends the answer;
  // what is above never was.
  void TakeDrafts();
  model::SequenceRows DraftedRows();
  void DecodedDrafts(absl::Status status);
  absl::Status ForwardAgain(std::size_t rows);

  model::SequenceRows RowsOf(std::span<const std::int32_t> ids, bool logits);
  // After their Forward, which ended with `status`. They are of `provenance` if
  // those below are `grid`.
  absl::Status Append(const model::SequenceRows& rows, absl::Status status,
                      Provenance provenance);
  absl::Status CheckFinite(const model::SequenceRows& rows) const;
  absl::Status NotFinite(bool logits) const;
  // The token that the backend chose behind the last row; none: logits() have
  // to be looked at.
  absl::StatusOr<std::optional<std::int32_t>> BackendsToken();
  void End(FinishReason reason);
  void Fail(const absl::Status& status);
  // There are rows to keep that nobody had before.
  bool HasNews() const;
  void Keep();
  void Record();
  // Those found for a step that did not come.
  void DropSpareBlocks();
  void LeaveSeat();
  // Others may resume from its rows while it runs.
  void ShowRows(bool show);

  EngineState& state_;
  Seat* seat_ = nullptr;  // null: paused, or not started
  const Request& request_;
  EventSink& sink_;
  const std::function<bool()> stop_;
  const std::vector<KeyId> prompt_keys_;
  Sequence sequence_;
  std::optional<SeatClaim> claim_;  // while it has a seat
  Resumption resumption_;
  // After a pause: of the prompt and what of the answer is not decoded again.
  std::vector<KeyId> again_keys_;
  std::optional<Resumption> again_;
  LaunchHistory history_;             // of rows lost by a pause
  std::optional<LineStores> stores_;  // until the prompt is done
  std::optional<PrefillAnchors>
      anchors_;  // while rows of the prompt are missing
  AnswerTokens answer_;
  std::vector<std::int32_t> ids_;  // prompt and answer
  std::vector<float> logits_;
  model::SequenceRows step_;                    // under way
  std::optional<kernels::TokenChoice> choice_;  // asked for in it
  kernels::ChosenToken chosen_;
  std::vector<int> waited_for_;  // positions
  int step_rows_ = 0;
  // The last token and drafts behind it; empty: there are none.
  std::vector<std::int32_t> drafted_ids_;
  std::vector<float> drafted_logits_;     // of each of their rows
  SectionBuffers::Buffer before_drafts_;  // the sections below their rows
  bool restored_ = false;                 // this start took rows from a tier
  bool full_step_ = false;                // nothing cut it short
  int reached_ = 0;                       // the most rows it has had
  int paused_rows_ = 0;  // the most that a pause kept as its conversation's
  Phase phase_ = Phase::kStart;
  Result result_;
  bool started_ = false;
  bool resumed_ = false;  // once
  bool prompt_done_ = false;
  bool model_failed_ = false;
  Clock::time_point phase_start_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_REQUEST_RUN_H_
