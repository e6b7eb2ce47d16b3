#include "engine/scheduler/request_run.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/model_status.h"
#include "engine/resume/state_digest.h"
#include "engine/scheduler/session_spill.h"
#include "fmt/format.h"
#include "shared/cache_layout.h"

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

RequestRun::RequestRun(EngineState& state, const Request& request,
                       EventSink& sink, std::function<bool()> stop)
    : state_(state),
      request_(request),
      sink_(sink),
      stop_(std::move(stop)),
      prompt_keys_(request.prompt.begin(), request.prompt.end()),
      sequence_(&state.pool, KindOf(request.cache_mode),
                RootPrefixKey(state.options.fingerprint, request.salt), {}),
      resumption_(state, request, prompt_keys_, sequence_.root),
      answer_(state, request, sink),
      ids_(request.prompt),
      logits_(state.model.info().vocab_size) {
  result_.prompt_tokens = static_cast<int>(request.prompt.size());
  if (request.digest) result_.digests.emplace();
  sequence_.session_key = request.session_key;
}

RequestRun::~RequestRun() { ShowRows(false); }

int RequestRun::target() const {
  return prompt_done_ ? static_cast<int>(ids_.size()) - 1
                      : result_.prompt_tokens;
}

void RequestRun::Start(Seat& seat, double queue_ms) {
  seat_ = &seat;
  seat.taken = true;
  // Only now: who waits for a seat costs no memory.
  if (sequence_.sections == nullptr) {
    sequence_.sections = state_.section_buffers.Take();
  }
  claim_.emplace(state_, seat, request_, prompt_keys_, sequence_);
  if (!std::exchange(started_, true)) {
    phase_start_ = Clock::now();
    result_.timing.queue_ms = queue_ms;
  }
  if (sequence_.sections == nullptr) {
    return Fail(
        absl::ResourceExhaustedError("no memory for a sequence's sections"));
  }
  if (resumed_) {
    // A grid backend's answer is decoded again row by row where its own end is
    // gone: another request's prefill of the same tokens has other bits.
    const int rows = state_.rule.any_split() || OwnEndIsKept()
                         ? target()
                         : result_.prompt_tokens;
    again_.reset();
    again_keys_.assign(ids_.begin(), ids_.begin() + rows);
    again_.emplace(state_, request_, again_keys_, sequence_.root);
  }
  resuming().Start(sequence_, *claim_);
  phase_ = Phase::kRestoring;
  RestoreStep();
}

void RequestRun::RestoreStep() {
  if (stop_()) {
    resuming().GiveUp();
    return End(FinishReason::kCancelled);
  }
  const std::optional<CacheReport> report = resuming().Poll();
  if (!report) return;
  phase_ = Phase::kPrefill;
  if (const auto status = Resumed(*report); !status.ok()) return Fail(status);
  ShowRows(true);
  TakeAnchors();
  if (rows_left() > 0) return;
  if (!prompt_done_) return PromptDone();
  anchors_.reset();
  GoOnAnswering();
}

absl::Status RequestRun::Resumed(const CacheReport& report) {
  CountResume(report);
  restored_ = resuming().from_tiers();
  if (std::exchange(resumed_, true)) {
    return prompt_done_ ? absl::OkStatus() : LogitsOfCachedPrompt();
  }
  if (request_.digest && sequence_.rows() > 0) {
    const auto digest = StateDigest(state_.model, state_.backend, sequence_,
                                    DigestSections::kRecurrent);
    if (!digest.ok()) return digest.status();
    result_.digests->resumed = *digest;
  }
  stores_.emplace(state_, request_, resumption_.prompt_view(), sequence_);
  return LogitsOfCachedPrompt();
}

bool RequestRun::OwnEndIsKept() const {
  const std::span<const std::int32_t> rows = std::span(ids_).first(target());
  return !request_.session_key.empty() &&
         std::ranges::any_of(
             state_.retained.Sequences(), [&](const Sequence* kept) {
               return kept->root == sequence_.root &&
                      kept->session_key == request_.session_key &&
                      kept->HasEnd() && std::ranges::equal(kept->ids, rows);
             });
}

absl::Status RequestRun::LogitsOfCachedPrompt() {
  if (rows_left() > 0) return absl::OkStatus();
  if (!sequence_.HasEnd()) {
    return absl::InternalError("resumed behind the prompt without its state");
  }
  // All of it was cached: its last hidden row is as good as a forward.
  const absl::Status status = ToAbslStatus(
      state_.model.LogitsFromHidden(sequence_.sections.get(), logits_));
  if (!status.ok()) return status;
  choice_.reset();
  model::SequenceRows read;
  read.last_logits = logits_;
  return CheckFinite(read);
}

// Rows that this request had before and lost count once: as what they were the
// first time.
void RequestRun::CountResume(const CacheReport& report) {
  CacheReport& all = result_.cache;
  const int rows = std::min(sequence_.rows(), result_.prompt_tokens);
  if (reached_ == 0) {
    all = report;
  } else if (rows > reached_) {
    const int news = rows - reached_;
    const auto other = std::ranges::find(all.rows_of, CacheSource::kResident,
                                         &SourceRows::value_type::first);
    if (other == all.rows_of.end()) {
      all.rows_of.emplace_back(CacheSource::kResident, news);
    } else {
      other->second += news;
    }
    all.resumed_at += news;
    if (all.source == CacheSource::kNone) all.source = report.source;
    all.miss = MissReason::kNone;
  }
  reached_ = std::max(reached_, rows);
}

void RequestRun::TakeAnchors() {
  if (sequence_.rows() > result_.prompt_tokens) return;
  anchors_.emplace(state_, sequence_, result_.prompt_tokens, request_.messages,
                   request_.turn, restored_);
  for (const int position : waited_for_) anchors_->AlsoAt(position);
  result_.cache.anchors_taken += anchors_->Reached();
}

void RequestRun::AnchorAt(int position) {
  waited_for_.push_back(position);
  if (anchors_) anchors_->AlsoAt(position);
}

bool RequestRun::Replays() const {
  return !state_.rule.any_split() && sequence_.rows() >= result_.prompt_tokens;
}

int RequestRun::PrefillRows(const StepSize::Limits& limits) {
  const int position = sequence_.rows();
  if (const int end =
          history_.EndOf(position, state_.rule,
                         static_cast<int>(state_.model.layout().grid_tokens));
      end > 0) {
    full_step_ = false;
    return end - position;
  }
  if (Replays()) return 1;
  const int end = state_.rule.any_split() ? target() : result_.prompt_tokens;
  const int wanted = state_.step_size.Next(position, end - position, limits);
  const int stop = anchors_ && position < result_.prompt_tokens
                       ? anchors_->NextStop() - position
                       : wanted;
  full_step_ = wanted <= stop;
  return std::min(wanted, stop);
}

Supply RequestRun::Prepare(const StepSize::Limits& limits) {
  if (phase_ == Phase::kPrefill) {
    step_rows_ = PrefillRows(limits);
  } else {
    TakeDrafts();
    step_rows_ = std::max(1, static_cast<int>(drafted_ids_.size()));
  }
  claim_->Displace();
  return HaveBlocks(state_, *claim_, sequence_, sequence_.rows() + step_rows_,
                    /*gated=*/phase_ == Phase::kDecode);
}

void RequestRun::PrefillStep() {
  if (stop_()) return End(FinishReason::kCancelled);
  const int position = sequence_.rows();
  const bool replays = Replays() || history_.Session(position);
  const bool logits = !prompt_done_ && step_rows_ == rows_left();
  const auto start = Clock::now();
  step_ = RowsOf(std::span(ids_).subspan(position, step_rows_), logits);
  const absl::Status status = Append(
      step_, ToAbslStatus(state_.model.Forward({&step_, 1})),
      replays ? state_.rule.OfDecode() : state_.rule.OfPrefill(position));
  if (!status.ok()) return Fail(status);
  const double seconds = Milliseconds(start) / 1000;
  // A step cut short for an anchor says nothing of a full one.
  if (full_step_ && !replays) state_.step_size.Measured(step_rows_, seconds);
  if (state_.tiering != nullptr && !replays) {
    state_.tiering->costs.MeasuredPrefill(step_rows_, seconds);
  }
  CountRows(step_rows_);
  if (anchors_) result_.cache.anchors_taken += anchors_->Reached();
  if (stores_) stores_->Reached();
  if (!prompt_done_) {
    sink_.OnProgress(sequence_.rows(), result_.prompt_tokens);
  }
  if (rows_left() > 0) return;
  if (!prompt_done_) return PromptDone();
  anchors_.reset();
  GoOnAnswering();
}

void RequestRun::CountRows(int rows) {
  state_.prefilled += rows;
  const int news = std::max(sequence_.rows() - reached_, 0);
  result_.cache.computed += news;
  result_.recomputed += rows - news;
  reached_ = std::max(reached_, sequence_.rows());
}

void RequestRun::PromptDone() {
  stores_->Submit();
  stores_.reset();
  anchors_.reset();
  prompt_done_ = true;
  if (request_.digest) {
    if (const auto status = DigestPrompt(); !status.ok()) return Fail(status);
  }
  result_.timing.prefill_ms = Milliseconds(phase_start_);
  phase_start_ = Clock::now();
  phase_ = Phase::kDecode;
  sink_.OnStarted(result_.cache, result_.timing);
  if (answer_.Holds()) return GoOnAnswering();
  NextToken();
}

void RequestRun::GoOnAnswering() {
  phase_ = answer_.Holds() ? Phase::kHeld : Phase::kDecode;
}

absl::StatusOr<std::optional<std::int32_t>> RequestRun::BackendsToken() {
  if (!choice_) return std::nullopt;
  if (chosen_.outcome == kernels::ChosenToken::Outcome::kChosen) {
    return chosen_.id;
  }
  // Its best candidates did not reach far enough.
  if (step_.last_logits.empty()) {
    const absl::Status status = ToAbslStatus(
        state_.model.LogitsFromHidden(sequence_.sections.get(), logits_));
    if (!status.ok()) return status;
  }
  return std::nullopt;
}

void RequestRun::NextToken() {
  const auto chosen = BackendsToken();
  if (!chosen.ok()) return Fail(chosen.status());
  const bool goes_on = answer_.Next(logits_, *chosen, stop_, result_);
  if (request_.prompt.size() + answer_.ids().size() > ids_.size()) {
    ids_.push_back(answer_.ids().back());
    ++state_.generated;
  }
  if (!goes_on) {
    phase_ = Phase::kEnded;
  } else {
    GoOnAnswering();
  }
}

model::SequenceRows RequestRun::DecodeRow() {
  step_ = drafted_ids_.empty() ? RowsOf(std::span(ids_).last(1), true)
                               : DraftedRows();
  return step_;
}

void RequestRun::Decoded(const absl::Status& status) {
  if (!drafted_ids_.empty()) return DecodedDrafts(status);
  const absl::Status appended = Append(step_, status, state_.rule.OfDecode());
  if (!appended.ok()) return Fail(appended);
  reached_ = std::max(reached_, sequence_.rows());
  NextToken();
}

void RequestRun::Pause() {
  if (phase_ == Phase::kRestoring) resuming().GiveUp();
  ShowRows(false);
  history_.Keep(sequence_);
  anchors_.reset();
  before_drafts_.reset();
  DropSpareBlocks();
  Sequence next(&state_.pool, sequence_.table.kind(), sequence_.root, {});
  next.session_key = sequence_.session_key;
  if (!scratch() && !claim_->guest()) {
    paused_rows_ = std::max(paused_rows_, sequence_.rows());
  }
  claim_->Pause();
  sequence_ = std::move(next);
  phase_ = Phase::kStart;
  ++result_.preemptions;
  LeaveSeat();
}

void RequestRun::OutOfBlocks() {
  const bool memory = MemoryForBlock(state_, /*give_back=*/false);
  Fail(absl::ResourceExhaustedError(
      memory ? fmt::format("out of blocks at position {}", sequence_.rows())
             : fmt::format("out of memory at position {}: the machine must "
                           "keep {} MiB free",
                           sequence_.rows(),
                           state_.options.memory.keep_free_bytes >> 20)));
}

Result RequestRun::Finish() {
  ShowRows(false);
  if (prompt_done_) {
    if (request_.digest && !model_failed_ && seat_ != nullptr) {
      if (const auto status = DigestEnd(); !status.ok()) Fail(status);
    }
    result_.timing.decode_ms = Milliseconds(phase_start_);
  } else if (started_) {
    result_.timing.prefill_ms = Milliseconds(phase_start_);
  }
  result_.output_tokens = static_cast<int>(answer_.ids().size());
  result_.as_cold = sequence_.taint >= result_.prompt_tokens &&
                    (state_.rule.any_split() || result_.preemptions == 0);
  stores_.reset();
  anchors_.reset();
  if (HasNews()) {
    Keep();
  } else if (paused_rows_ > 0 && !model_failed_) {
    Record();  // of what its last pause kept
  }
  LeaveSeat();
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

model::SequenceRows RequestRun::RowsOf(std::span<const std::int32_t> ids,
                                       bool logits) {
  model::SequenceRows rows = {.ids = ids,
                              .position = sequence_.rows(),
                              .blocks = sequence_.table.pointers(),
                              .sections = sequence_.sections.get(),
                              .last_logits = {},
                              .all_logits = {}};
  choice_.reset();
  if (!logits) return rows;
  choice_ = answer_.BackendsChoice();
  if (choice_) {
    rows.choice = &*choice_;
    rows.chosen = &chosen_;
  }
  if (!choice_ || answer_.wants_logits() || request_.digest) {
    rows.last_logits = logits_;
  }
  return rows;
}

absl::Status RequestRun::Append(const model::SequenceRows& rows,
                                absl::Status status, Provenance provenance) {
  if (status.ok()) status = CheckFinite(rows);
  if (!status.ok()) {
    model_failed_ = true;
    return status;
  }
  // Only now: rows that are not known to be good are not the sequence's.
  sequence_.Append(rows.ids, provenance);
  return absl::OkStatus();
}

// A hidden row that is not finite poisons every later one, so it stands for the
// rows of its step where no logits were asked for.
absl::Status RequestRun::CheckFinite(const model::SequenceRows& rows) const {
  state_.backend.Read(sequence_.sections.get() + state_.h_last_offset,
                      state_.h_last.size() * sizeof(float),
                      state_.h_last.data());
  const absl::Status read = ToAbslStatus(state_.backend.Synchronize());
  if (!read.ok()) return read;
  const bool logits = !rows.last_logits.empty() || choice_.has_value();
  const bool chosen_from_bad =
      choice_ && chosen_.outcome == kernels::ChosenToken::Outcome::kNotFinite;
  if (AllFinite(state_.h_last) && AllFinite(rows.last_logits) &&
      !chosen_from_bad) {
    return absl::OkStatus();
  }
  return NotFinite(logits);
}

absl::Status RequestRun::NotFinite(bool logits) const {
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

bool RequestRun::HasNews() const {
  if (seat_ == nullptr || scratch() || model_failed_ || sequence_.rows() == 0) {
    return false;
  }
  return sequence_.rows() > result_.cache.resumed_at ||
         resumption_.from_tiers() || result_.preemptions > 0;
}

void RequestRun::Keep() {
  DropSpareBlocks();
  // A guest keeps no end that its next turn could resume at.
  if (!claim_->guest()) Record();
  PublishBlocks(state_.pool, state_.rule, sequence_);
  claim_->Keep();
  if (!claim_->guest()) StoreTurn(state_, *seat_);
}

void RequestRun::DropSpareBlocks() {
  const int rows = sequence_.rows();
  sequence_.table.Truncate((rows + kBlockTokens - 1) / kBlockTokens);
}

void RequestRun::LeaveSeat() {
  claim_.reset();
  if (seat_ != nullptr) seat_->taken = false;
  seat_ = nullptr;
}

void RequestRun::ShowRows(bool show) {
  std::erase(state_.running, &sequence_);
  if (show && !scratch()) state_.running.push_back(&sequence_);
}

void RequestRun::Record() {
  if (request_.session_key.empty()) return;
  std::vector<std::int32_t> ids = request_.prompt;
  ids.insert(ids.end(), answer_.ids().begin(), answer_.ids().end());
  state_.records->Ended(sequence_.root, request_.session_key,
                        request_.record_ticket, std::move(ids),
                        std::max(sequence_.rows(), paused_rows_));
}

}  // namespace holdfast::engine
