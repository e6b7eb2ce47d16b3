#include "engine/scheduler/request_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/model_status.h"
#include "engine/resume/plan.h"
#include "engine/resume/state_digest.h"
#include "engine/scheduler/line_stores.h"
#include "engine/scheduler/prefill_anchors.h"
#include "engine/scheduler/session_spill.h"
#include "engine/scheduler/tier_resume.h"
#include "fmt/format.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point from) {
  return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

BlockTable::Kind KindOf(CacheMode mode) {
  return mode == CacheMode::kDefault ? BlockTable::Kind::kPooled
                                     : BlockTable::Kind::kScratch;
}

}  // namespace

std::vector<std::pair<CacheSource, int>> CachedBySource(
    const CacheReport& cache) {
  std::vector<std::pair<CacheSource, int>> sources;
  const int pool = cache.resumed_at - cache.restored;
  if (cache.restored > 0) {
    sources.emplace_back(cache.source, cache.restored);
    if (pool > 0) sources.emplace_back(CacheSource::kResident, pool);
  } else if (pool > 0) {
    sources.emplace_back(cache.source, pool);
  }
  return sources;
}

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      break;
  }
  return "error";
}

RequestRun::RequestRun(EngineState& state, const Request& request,
                       EventSink& sink, double queue_ms,
                       std::function<bool()> stop)
    : state_(state),
      request_(request),
      sink_(sink),
      stop_(std::move(stop)),
      prompt_keys_(request.prompt.begin(), request.prompt.end()),
      sequence_(&state.pool, KindOf(request.cache_mode),
                RootPrefixKey(state.options.fingerprint, request.salt),
                state.section_buffers.Take()),
      stops_(request.stop_strings) {
  result_.prompt_tokens = static_cast<int>(request.prompt.size());
  result_.timing.queue_ms = queue_ms;
  if (request.digest) result_.digests.emplace();
  sequence_.session_key = request.session_key;
  if (state.tiering == nullptr) return;
  state.tiering->leases.Collect(Clock::now());
  ExtendPrefixKeys(sequence_.root, prompt_keys_, block_keys_);
  prompt_view_ = {sequence_.root, prompt_keys_, block_keys_};
}

Result RequestRun::Run() {
  const auto start = Clock::now();
  const bool prefilled = Prefill() && AfterPrompt();
  result_.timing.prefill_ms = Milliseconds(start);
  if (prefilled) {
    const auto decode_start = Clock::now();
    sink_.OnStarted(result_.cache, result_.timing);
    Decode();
    result_.timing.decode_ms = Milliseconds(decode_start);
  }
  result_.output_tokens = static_cast<int>(output_.size());
  Keep();
  return std::move(result_);
}

bool RequestRun::Prefill() {
  if (sequence_.sections == nullptr) {
    Fail(absl::ResourceExhaustedError("no memory for a sequence's sections"));
    return false;
  }
  if (const auto status = Resume(); !status.ok()) return Fail(status), false;
  LineStores stores(state_, request_, prompt_view_, sequence_);
  PrefillAnchors anchors(state_, sequence_, result_.prompt_tokens,
                         request_.messages, result_.cache.restored > 0);
  result_.cache.anchors_taken += anchors.Reached();
  const int total = result_.prompt_tokens;
  while (sequence_.rows() < total) {
    if (stop_()) return End(FinishReason::kCancelled), false;
    const int position = sequence_.rows();
    const int wanted = state_.step_size.Next(position, total - position);
    const int rows = std::min(wanted, anchors.NextStop() - position);
    const auto ids = std::span(request_.prompt).subspan(position, rows);
    const auto step_start = Clock::now();
    const absl::Status status =
        Step(ids, position + rows == total, state_.rule.OfPrefill(position));
    if (!status.ok()) return Fail(status), false;
    const double seconds = Milliseconds(step_start) / 1000;
    // A step cut short for an anchor says nothing of a full one.
    if (rows == wanted) state_.step_size.Measured(rows, seconds);
    if (state_.tiering != nullptr) {
      state_.tiering->costs.MeasuredPrefill(rows, seconds);
    }
    result_.cache.computed += rows;
    state_.prefilled += rows;
    result_.cache.anchors_taken += anchors.Reached();
    stores.Reached();
    sink_.OnProgress(sequence_.rows(), total);
  }
  stores.Submit();
  return true;
}

// Gives the sequence what is cached of the prompt.
absl::Status RequestRun::Resume() {
  if (!ResumeFromTiers()) ResumeInPlace();
  return AfterResume();
}

bool RequestRun::ResumeFromTiers() {
  if (state_.tiering == nullptr || request_.cache_mode == CacheMode::kBypass) {
    return false;
  }
  const int in_place = Plan(result_.prompt_tokens).position;
  TierResume resume(
      state_, prompt_view_, request_.cache_mode == CacheMode::kDefault,
      {.stop = stop_,
       .have_blocks = [this](int rows) { return HaveBlocks(rows); }});
  const TierResumption from = resume.Run(in_place, sequence_);
  tier_miss_ = from.miss;
  if (from.source == CacheSource::kNone) return false;
  const int grid = static_cast<int>(state_.model.layout().grid_tokens);
  result_.cache = {.source = from.source,
                   .resumed_at = sequence_.rows(),
                   .restored = from.restored,
                   .computed = 0,
                   .miss = MissReason::kNone,
                   .anchor = sequence_.rows() % grid == 0 ? AnchorKind::kLine
                                                          : AnchorKind::kEnd,
                   .anchors_taken = 0};
  return true;
}

void RequestRun::ResumeInPlace() {
  int limit = result_.prompt_tokens;
  for (bool started = false; !started;) {
    // Gone before the first step: it refers to other conversations' anchors.
    const ResumePlan plan = Plan(limit);
    started = StartSequence(plan, prompt_keys_, state_.model.kv_shape(),
                            state_.section_buffers.section_bytes(),
                            state_.backend, state_.pool, sequence_);
    result_.cache = {.source = plan.source,
                     .resumed_at = sequence_.rows(),
                     .restored = 0,
                     .computed = 0,
                     .miss = plan.miss,
                     .anchor = plan.anchor,
                     .anchors_taken = 0};
    limit = plan.position / kBlockTokens * kBlockTokens;
  }
  // The tiers know better than the pool why there was nothing.
  if (result_.cache.miss == MissReason::kCold &&
      tier_miss_ != MissReason::kNone) {
    result_.cache.miss = tier_miss_;
  }
}

absl::Status RequestRun::AfterResume() {
  if (request_.digest && sequence_.rows() > 0) {
    const auto digest = StateDigest(state_.model, state_.backend, sequence_,
                                    DigestSections::kRecurrent);
    if (!digest.ok()) return digest.status();
    result_.digests->resumed = *digest;
  }
  if (sequence_.rows() < result_.prompt_tokens) return absl::OkStatus();
  // All of it was cached: its last hidden row is as good as a forward.
  const absl::Status status = ToAbslStatus(
      state_.model.LogitsFromHidden(sequence_.sections.get(), state_.logits));
  return status.ok() ? CheckFinite(true) : status;
}

ResumePlan RequestRun::Plan(int limit) {
  if (request_.cache_mode == CacheMode::kBypass) {
    ResumePlan cold;
    cold.miss = MissReason::kBypass;
    return cold;
  }
  const CachedStates cached{
      .pool = state_.pool,
      .resident = state_.resident ? &*state_.resident : nullptr,
      .remnants = state_.remnants,
      .recurrent = state_.model.layout().Recurrent(),
      .rule = state_.rule,
      .session_key = request_.session_key};
  ResumePlan plan = PlanResume(cached, sequence_.root, prompt_keys_, limit);
  if (request_.cache_mode == CacheMode::kDefault) {
    state_.remnants.Touch(plan.remnant);
  }
  return plan;
}

bool RequestRun::AfterPrompt() {
  if (!request_.digest) return true;
  const auto digest = StateDigest(state_.model, state_.backend, sequence_,
                                  DigestSections::kAll);
  if (!digest.ok()) return Fail(digest.status()), false;
  result_.digests->first_logits = LogitsDigest(state_.logits);
  result_.digests->prompt_end = *digest;
  result_.digests->end = *digest;
  SayTaint();
  return true;
}

void RequestRun::Decode() {
  while (NextToken()) {
    const absl::Status status =
        Step(std::span(output_).last(1), true, state_.rule.OfDecode());
    if (!status.ok()) return Fail(status);
  }
  if (!request_.digest || model_failed_) return;
  const auto digest = StateDigest(state_.model, state_.backend, sequence_,
                                  DigestSections::kAll);
  if (!digest.ok()) return Fail(digest.status());
  result_.digests->end = *digest;
  SayTaint();
}

void RequestRun::SayTaint() {
  if (sequence_.taint == kUntainted) return;
  result_.digests->taint = sequence_.taint;
}

// Takes a token from the last logits and sends it. False when none follows: the
// last token of an answer is never forwarded.
bool RequestRun::NextToken() {
  const auto& forced = request_.forced;
  const auto at_limit = [&] {
    const std::size_t index = output_.size();
    if (forced && index >= forced->size())
      return End(FinishReason::kStop), true;
    const bool full = static_cast<int>(index) >= request_.max_tokens ||
                      result_.prompt_tokens + static_cast<int>(index) >=
                          state_.options.max_context;
    if (full) End(FinishReason::kLength);
    return full;
  };
  if (at_limit()) return false;
  if (stop_()) return End(FinishReason::kCancelled), false;
  std::int32_t id = state_.sampler.Sample(state_.logits, request_.prompt,
                                          output_, request_.sampling);
  if (forced) id = (*forced)[output_.size()];
  OutputToken token{.id = id, .logprobs = {}};
  if (request_.top_logprobs) {
    token.logprobs = ComputeLogprobs(state_.logits, id, *request_.top_logprobs);
  }
  output_.push_back(id);
  if (!sink_.OnToken(token)) {
    Fail(absl::ResourceExhaustedError("the client reads too slowly"));
    return false;
  }
  if (!request_.ignore_eos &&
      std::ranges::count(state_.options.eos_ids, id) > 0) {
    return End(FinishReason::kStop), false;
  }
  if (const auto stop = stops_.Append(state_.token_bytes.Of(id))) {
    result_.stop_string_index = *stop;
    return End(FinishReason::kStopString), false;
  }
  return !at_limit();
}

absl::Status RequestRun::Step(std::span<const std::int32_t> ids, bool logits,
                              Provenance provenance) {
  const int position = sequence_.rows();
  if (!HaveBlocks(position + static_cast<int>(ids.size()))) {
    return absl::ResourceExhaustedError(
        fmt::format("out of blocks at position {}", position));
  }
  model::SequenceRows rows{
      .ids = ids,
      .position = position,
      .blocks = sequence_.table.pointers(),
      .sections = sequence_.sections.get(),
      .last_logits = logits ? std::span(state_.logits) : std::span<float>(),
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

bool RequestRun::HaveBlocks(int rows) {
  while (sequence_.table.size() * kBlockTokens < rows) {
    if (sequence_.table.Append()) continue;
    // The resident goes last, and only for a request that replaces it.
    if (sequence_.table.kind() == BlockTable::Kind::kScratch) return false;
    if (state_.tiering != nullptr && state_.tiering->leases.RevokeAll() > 0) {
      continue;  // stores wait for nobody, and nobody waits for stores
    }
    if (!state_.resident) return false;
    state_.RetireResident(sequence_.anchors);
  }
  return true;
}

// A hidden row that is not finite poisons every later one, so it stands for the
// rows of its step where no logits were asked for.
absl::Status RequestRun::CheckFinite(bool logits) const {
  const auto* h_last = reinterpret_cast<const float*>(sequence_.sections.get() +
                                                      state_.h_last_offset);
  const bool good = AllFinite({h_last, state_.h_last_floats}) &&
                    (!logits || AllFinite(state_.logits));
  if (good) return absl::OkStatus();
  return absl::DataLossError(fmt::format(
      "the model computed a non-finite {} in the step after position {}",
      logits ? "logit" : "hidden value", sequence_.rows()));
}

void RequestRun::Fail(const absl::Status& status) {
  End(FinishReason::kError);
  result_.error = std::string(status.message());
}

void RequestRun::Keep() {
  const bool news =
      sequence_.rows() > result_.cache.resumed_at || result_.cache.restored > 0;
  if (sequence_.table.kind() == BlockTable::Kind::kScratch || model_failed_ ||
      !news) {
    return;
  }
  PublishBlocks(state_.pool, state_.rule, sequence_);
  state_.remnants.Forget(sequence_.anchors);
  state_.RetireResident(sequence_.anchors);
  state_.resident = std::move(sequence_);
  StoreTurn(state_);
}

}  // namespace holdfast::engine
