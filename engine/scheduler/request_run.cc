#include "engine/scheduler/request_run.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/model_status.h"
#include "engine/resume/state_digest.h"
#include "engine/scheduler/block_supply.h"
#include "engine/scheduler/session_spill.h"
#include "fmt/format.h"

namespace holdfast::engine {
namespace {

double Milliseconds(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now() - from)
      .count();
}

BlockTable::Kind KindOf(CacheMode mode) {
  return mode == CacheMode::kDefault ? BlockTable::Kind::kPooled
                                     : BlockTable::Kind::kScratch;
}

}  // namespace

RequestRun::RequestRun(EngineState& state, Seat& seat, const Request& request,
                       EventSink& sink, double queue_ms,
                       std::function<bool()> stop)
    : state_(state),
      seat_(seat),
      request_(request),
      sink_(sink),
      stop_(std::move(stop)),
      prompt_keys_(request.prompt.begin(), request.prompt.end()),
      sequence_(&state.pool, KindOf(request.cache_mode),
                RootPrefixKey(state.options.fingerprint, request.salt),
                state.section_buffers.Take()),
      claim_(state, seat, request, prompt_keys_, sequence_),
      resumption_(state, request, prompt_keys_, sequence_.root, stop_),
      answer_(state, request, sink),
      logits_(state.model.info().vocab_size) {
  result_.prompt_tokens = static_cast<int>(request.prompt.size());
  result_.timing.queue_ms = queue_ms;
  if (request.digest) result_.digests.emplace();
  sequence_.session_key = request.session_key;
}

void RequestRun::Start() {
  phase_start_ = Clock::now();
  phase_ = Phase::kPrefill;
  if (sequence_.sections == nullptr) {
    return Fail(
        absl::ResourceExhaustedError("no memory for a sequence's sections"));
  }
  if (const auto status = Resume(); !status.ok()) return Fail(status);
  prefill_.emplace(state_, request_, resumption_.prompt_view(), sequence_,
                   resumption_.from_tiers());
  result_.cache.anchors_taken += prefill_->anchors.Reached();
  if (rows_left() == 0) PromptDone();
}

absl::Status RequestRun::Resume() {
  result_.cache = resumption_.Run(sequence_, claim_);
  if (request_.digest && sequence_.rows() > 0) {
    const auto digest = StateDigest(state_.model, state_.backend, sequence_,
                                    DigestSections::kRecurrent);
    if (!digest.ok()) return digest.status();
    result_.digests->resumed = *digest;
  }
  if (rows_left() > 0) return absl::OkStatus();
  // All of it was cached: its last hidden row is as good as a forward.
  const absl::Status status = ToAbslStatus(
      state_.model.LogitsFromHidden(sequence_.sections.get(), logits_));
  return status.ok() ? CheckFinite(true) : status;
}

void RequestRun::PrefillStep() {
  if (stop_()) return End(FinishReason::kCancelled);
  const int position = sequence_.rows();
  const int wanted = state_.step_size.Next(position, rows_left());
  const int rows = std::min(wanted, prefill_->anchors.NextStop() - position);
  const auto ids = std::span(request_.prompt).subspan(position, rows);
  const auto start = Clock::now();
  const absl::Status status =
      Forward(ids, rows == rows_left(), state_.rule.OfPrefill(position));
  if (!status.ok()) return Fail(status);
  const double seconds = Milliseconds(start) / 1000;
  // A step cut short for an anchor says nothing of a full one.
  if (rows == wanted) state_.step_size.Measured(rows, seconds);
  if (state_.tiering != nullptr) {
    state_.tiering->costs.MeasuredPrefill(rows, seconds);
  }
  result_.cache.computed += rows;
  state_.prefilled += rows;
  result_.cache.anchors_taken += prefill_->anchors.Reached();
  prefill_->stores.Reached();
  sink_.OnProgress(sequence_.rows(), result_.prompt_tokens);
  if (rows_left() == 0) PromptDone();
}

void RequestRun::PromptDone() {
  prefill_->stores.Submit();
  prefill_.reset();
  prompt_done_ = true;
  if (request_.digest) {
    if (const auto status = DigestPrompt(); !status.ok()) return Fail(status);
  }
  result_.timing.prefill_ms = Milliseconds(phase_start_);
  phase_start_ = Clock::now();
  phase_ = Phase::kDecode;
  sink_.OnStarted(result_.cache, result_.timing);
  NextToken();
}

void RequestRun::NextToken() {
  if (!answer_.Next(logits_, stop_, result_)) phase_ = Phase::kEnded;
}

void RequestRun::DecodeStep() {
  const absl::Status status =
      Forward(std::span(answer_.ids()).last(1), true, state_.rule.OfDecode());
  if (!status.ok()) return Fail(status);
  NextToken();
}

Result RequestRun::Finish() {
  if (prompt_done_) {
    if (request_.digest && !model_failed_) {
      if (const auto status = DigestEnd(); !status.ok()) Fail(status);
    }
    result_.timing.decode_ms = Milliseconds(phase_start_);
  } else {
    result_.timing.prefill_ms = Milliseconds(phase_start_);
  }
  result_.output_tokens = static_cast<int>(answer_.ids().size());
  prefill_.reset();
  Keep();
  return std::move(result_);
}

absl::Status RequestRun::DigestPrompt() {
  const auto digest = StateDigest(state_.model, state_.backend, sequence_,
                                  DigestSections::kAll);
  if (!digest.ok()) return digest.status();
  result_.digests->first_logits = LogitsDigest(logits_);
  result_.digests->prompt_end = *digest;
  result_.digests->end = *digest;
  SayTaint();
  return absl::OkStatus();
}

absl::Status RequestRun::DigestEnd() {
  const auto digest = StateDigest(state_.model, state_.backend, sequence_,
                                  DigestSections::kAll);
  if (!digest.ok()) return digest.status();
  result_.digests->end = *digest;
  SayTaint();
  return absl::OkStatus();
}

void RequestRun::SayTaint() {
  if (sequence_.taint == kUntainted) return;
  result_.digests->taint = sequence_.taint;
}

absl::Status RequestRun::Forward(std::span<const std::int32_t> ids, bool logits,
                                 Provenance provenance) {
  const int position = sequence_.rows();
  claim_.Displace();
  if (!HaveBlocks(state_, claim_, sequence_,
                  position + static_cast<int>(ids.size()))) {
    return absl::ResourceExhaustedError(
        fmt::format("out of blocks at position {}", position));
  }
  model::SequenceRows rows{
      .ids = ids,
      .position = position,
      .blocks = sequence_.table.pointers(),
      .sections = sequence_.sections.get(),
      .last_logits = logits ? std::span(logits_) : std::span<float>(),
      .all_logits = {}};
  absl::Status status = ToAbslStatus(state_.model.Forward({&rows, 1}));
  if (status.ok()) status = CheckFinite(logits);
  if (!status.ok()) {
    model_failed_ = true;
    return status;
  }
  // Only now: rows that are not known to be good are not the sequence's.
  sequence_.Append(ids, provenance);
  return absl::OkStatus();
}

// A hidden row that is not finite poisons every later one, so it stands for the
// rows of its step where no logits were asked for.
absl::Status RequestRun::CheckFinite(bool logits) const {
  const auto* h_last = reinterpret_cast<const float*>(sequence_.sections.get() +
                                                      state_.h_last_offset);
  const bool good = AllFinite({h_last, state_.h_last_floats}) &&
                    (!logits || AllFinite(logits_));
  if (good) return absl::OkStatus();
  return absl::DataLossError(fmt::format(
      "the model computed a non-finite {} in the step after position {}",
      logits ? "logit" : "hidden value", sequence_.rows()));
}

void RequestRun::End(FinishReason reason) {
  result_.reason = reason;
  phase_ = Phase::kEnded;
}

void RequestRun::Fail(const absl::Status& status) {
  result_.error = std::string(status.message());
  End(FinishReason::kError);
}

void RequestRun::Keep() {
  const bool news =
      sequence_.rows() > result_.cache.resumed_at || resumption_.from_tiers();
  if (sequence_.table.kind() == BlockTable::Kind::kScratch || model_failed_ ||
      !news) {
    return;
  }
  Record();
  PublishBlocks(state_.pool, state_.rule, sequence_);
  claim_.Keep();
  if (!claim_.guest()) StoreTurn(state_, seat_);
}

void RequestRun::Record() {
  if (request_.session_key.empty()) return;
  std::vector<std::int32_t> ids = request_.prompt;
  ids.insert(ids.end(), answer_.ids().begin(), answer_.ids().end());
  state_.records->Ended(sequence_.root, request_.session_key,
                        request_.record_ticket, std::move(ids),
                        sequence_.rows());
}

}  // namespace holdfast::engine
