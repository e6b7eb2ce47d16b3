#include "engine/service/convert.h"

#include <algorithm>
#include <limits>
#include <string>

#include "fmt/format.h"

namespace holdfast::engine {
namespace {

// Unsigned on the wire; what does not fit is as good as the largest that does.
int ToInt(std::uint32_t value) {
  return static_cast<int>(
      std::min<std::uint32_t>(value, std::numeric_limits<std::int32_t>::max()));
}

std::vector<std::int32_t> Ids(
    const google::protobuf::RepeatedField<std::uint32_t>& ids) {
  std::vector<std::int32_t> converted;
  converted.reserve(ids.size());
  for (std::uint32_t id : ids) converted.push_back(ToInt(id));
  return converted;
}

SamplingParams FromProto(const v1::SamplingParams& proto) {
  SamplingParams params{.temperature = proto.temperature(),
                        .top_k = ToInt(proto.top_k()),
                        .top_p = proto.top_p() == 0 ? 1 : proto.top_p(),
                        .min_p = proto.min_p(),
                        .seed = proto.seed(),
                        .repetition_penalty = proto.repetition_penalty() == 0
                                                  ? 1
                                                  : proto.repetition_penalty(),
                        .presence_penalty = proto.presence_penalty(),
                        .frequency_penalty = proto.frequency_penalty(),
                        .logit_bias = {}};
  for (const auto& [id, bias] : proto.logit_bias()) {
    params.logit_bias.emplace_back(ToInt(id), bias);
  }
  std::ranges::sort(params.logit_bias);  // a map's order is not defined
  return params;
}

ThinkingLimit FromProto(const v1::ThinkingBudget& proto) {
  return {.tokens = ToInt(proto.tokens()),
          .open = proto.open(),
          .open_tag = proto.open_tag(),
          .close_tag = proto.close_tag(),
          .open_id = proto.has_open_id() ? ToInt(proto.open_id()) : -1,
          .close_id = proto.has_close_id() ? ToInt(proto.close_id()) : -1,
          .words = Ids(proto.words())};
}

absl::StatusOr<CacheMode> FromProto(v1::CacheMode mode) {
  switch (mode) {
    case v1::CACHE_MODE_DEFAULT:
      return CacheMode::kDefault;
    case v1::CACHE_MODE_BYPASS:
      return CacheMode::kBypass;
    case v1::CACHE_MODE_READ_ONLY:
      return CacheMode::kReadOnly;
    default:
      return absl::InvalidArgumentError(
          fmt::format("cache_mode {} is unknown", static_cast<int>(mode)));
  }
}

absl::Status CheckMessages(const v1::GenerateRequest& proto) {
  std::int64_t last = -1;
  for (const v1::MessagePosition& message : proto.messages()) {
    const std::int64_t position = message.position_tokens();
    if (position <= last || position >= proto.prompt_ids_size()) {
      return absl::InvalidArgumentError(fmt::format(
          "messages: position {} is not in ascending order within the prompt",
          position));
    }
    last = position;
  }
  return absl::OkStatus();
}

// Where an edited or retried conversation parts from what is cached.
std::vector<int> MessageStarts(const v1::GenerateRequest& proto) {
  std::vector<int> starts;
  for (const v1::MessagePosition& message : proto.messages()) {
    if (message.role() == v1::ROLE_USER ||
        message.role() == v1::ROLE_ASSISTANT) {
      starts.push_back(ToInt(message.position_tokens()));
    }
  }
  return starts;
}

int HeadOf(const v1::GenerateRequest& proto) {
  int head = 0;
  for (const v1::MessagePosition& message : proto.messages()) {
    if (message.role() == v1::ROLE_ASSISTANT) break;
    if (message.role() == v1::ROLE_USER)
      head = ToInt(message.position_tokens());
  }
  return head;
}

int TurnOf(const v1::GenerateRequest& proto) {
  int turn = 0;
  bool answered = true;
  for (const v1::MessagePosition& message : proto.messages()) {
    if (message.role() == v1::ROLE_USER) answered = false;
    if (message.role() == v1::ROLE_ASSISTANT &&
        !std::exchange(answered, true)) {
      turn = ToInt(message.position_tokens());
    }
  }
  return turn;
}

v1::Refused::Reason ToProto(Refusal::Reason reason) {
  switch (reason) {
    case Refusal::Reason::kQueueFull:
      return v1::Refused::QUEUE_FULL;
    case Refusal::Reason::kDraining:
      return v1::Refused::DRAINING;
    case Refusal::Reason::kContextOverflow:
      return v1::Refused::CONTEXT_OVERFLOW;
    case Refusal::Reason::kInvalid:
      return v1::Refused::INVALID;
    case Refusal::Reason::kOutOfBlocks:
      return v1::Refused::OUT_OF_BLOCKS;
    case Refusal::Reason::kDebugOnly:
      return v1::Refused::DEBUG_ONLY;
    case Refusal::Reason::kModelChanged:
      return v1::Refused::MODEL_CHANGED;
  }
  return v1::Refused::REASON_UNSPECIFIED;
}

v1::Finished::Reason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return v1::Finished::STOP;
    case FinishReason::kStopString:
      return v1::Finished::STOP_STRING;
    case FinishReason::kLength:
      return v1::Finished::LENGTH;
    case FinishReason::kCancelled:
      return v1::Finished::CANCELLED;
    case FinishReason::kError:
      return v1::Finished::ERROR;
  }
  return v1::Finished::REASON_UNSPECIFIED;
}

std::string Bytes(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

void FillPlanner(const TierCounters& counters, v1::EngineStats& proto) {
  v1::PlannerStats& planner = *proto.mutable_planner();
  planner.set_prefill_tokens_per_s(counters.prefill_tokens_per_s);
  (*planner.mutable_chosen())["in_place"] = counters.chose_in_place;
  for (int i = 0; i < kTiers; ++i) {
    const std::string tier = TierName(static_cast<Tier>(i));
    const TierCounters::OfTier& of = counters.tiers[i];
    (*planner.mutable_read_bytes_per_s())[tier] = of.read_bytes_per_s;
    (*planner.mutable_chosen())[tier] = of.chosen;
    (*planner.mutable_lost())[tier] = of.lost;
    (*planner.mutable_too_costly())[tier] = of.too_costly;
  }
}

}  // namespace

absl::StatusOr<Request> FromProto(const v1::GenerateRequest& proto) {
  Request request;
  request.id = proto.request_id();
  request.session_key = proto.session_key();
  request.record_ticket = proto.record_ticket();
  request.prompt = Ids(proto.prompt_ids());
  request.messages = MessageStarts(proto);
  request.head = HeadOf(proto);
  request.turn = TurnOf(proto);
  request.salt = proto.salt();
  if (!proto.fingerprint().empty()) {
    // Another length is another model's: all zeros is nobody's.
    Sha256Digest digest{};
    if (proto.fingerprint().size() == digest.size()) {
      std::ranges::copy(proto.fingerprint(), digest.begin());
    }
    request.fingerprint = digest;
  }
  if (auto status = CheckMessages(proto); !status.ok()) return status;
  const auto mode = FromProto(proto.cache_mode());
  if (!mode.ok()) return mode.status();
  request.cache_mode = *mode;
  request.sampling = FromProto(proto.sampling());
  request.max_tokens = ToInt(proto.max_tokens());
  request.stop_strings.assign(proto.stop_strings().begin(),
                              proto.stop_strings().end());
  request.ignore_eos = proto.ignore_eos();
  if (proto.has_top_logprobs()) {
    request.top_logprobs = ToInt(proto.top_logprobs());
  }
  if (proto.force()) {
    request.forced = Ids(proto.forced_ids());
    request.hold = proto.hold();
  }
  request.digest = proto.digest();
  if (proto.has_thinking_budget()) {
    request.thinking = FromProto(proto.thinking_budget());
  }
  return request;
}

void ToProto(const Refusal& refusal, v1::Refused* proto) {
  proto->set_reason(ToProto(refusal.reason));
  proto->set_message(refusal.message);
  proto->set_retry_after_ms(refusal.retry_after_ms);
  proto->set_max_context_tokens(refusal.max_context);
}

void ToProto(const CacheReport& cache, v1::CacheReport* proto) {
  proto->set_cache_source(CacheSourceName(cache.source));
  for (const auto& [source, rows] : CachedBySource(cache)) {
    (*proto->mutable_cached_tokens_by_source())[CacheSourceName(source)] = rows;
  }
  proto->set_resumed_at_tokens(cache.resumed_at);
  proto->set_computed_tokens(cache.computed);
  proto->set_miss_reason(MissReasonName(cache.miss));
  if (cache.anchor) proto->set_anchor(AnchorKindName(*cache.anchor));
}

void ToProto(const OutputToken& token, v1::OutputToken* proto) {
  proto->set_id(token.id);
  proto->set_hidden(token.hidden);
  if (!token.logprobs) return;
  proto->set_logprob(token.logprobs->chosen);
  for (const TokenLogprob& top : token.logprobs->top) {
    v1::TokenLogprob* out = proto->add_top();
    out->set_id(top.id);
    out->set_logprob(top.logprob);
  }
}

void ToProto(const Result& result, v1::Finished* proto) {
  proto->set_reason(ToProto(result.reason));
  proto->set_stop_string_index(result.stop_string_index);
  ToProto(result.cache, proto->mutable_cache());
  proto->set_prompt_tokens(result.prompt_tokens);
  proto->set_output_tokens(result.output_tokens);
  proto->set_queue_ms(result.timing.queue_ms);
  proto->set_prefill_ms(result.timing.prefill_ms);
  proto->set_decode_ms(result.timing.decode_ms);
  proto->set_error(result.error);
  if (!result.digests) return;
  v1::Digests* digests = proto->mutable_digests();
  digests->set_first_logits(Bytes(result.digests->first_logits));
  if (result.digests->resumed) {
    digests->set_resumed(Bytes(*result.digests->resumed));
  }
  digests->set_prompt_end(Bytes(result.digests->prompt_end));
  digests->set_end(Bytes(result.digests->end));
  if (result.digests->taint) {
    digests->set_taint(static_cast<std::uint32_t>(*result.digests->taint));
  }
}

void ToProto(const RequestTotals::Values& totals, v1::EngineStats* proto) {
  const auto copy = [](const RequestTotals::Counts& from, auto* to) {
    to->insert(from.begin(), from.end());
  };
  copy(totals.prompt_tokens, proto->mutable_prompt_tokens_by_source());
  copy(totals.finished, proto->mutable_requests_by_finish_reason());
  copy(totals.refused, proto->mutable_refused_by_reason());
  copy(totals.misses, proto->mutable_misses_by_reason());
  copy(totals.resumes, proto->mutable_resumes_by_anchor());
  proto->set_generated_tokens(totals.generated_tokens);
  v1::RecentRequests* recent = proto->mutable_recent();
  recent->set_requests(static_cast<std::uint32_t>(totals.recent.requests));
  recent->set_queried_tokens(totals.recent.queried_tokens);
  recent->set_hit_tokens(totals.recent.hit_tokens);
}

void ToProto(const EngineGauges& gauges, v1::EngineStats* proto) {
  const auto blocks = [](int count) {
    return static_cast<std::uint64_t>(count);
  };
  proto->set_running_requests(static_cast<std::uint32_t>(gauges.running));
  proto->set_waiting_requests(static_cast<std::uint32_t>(gauges.waiting));
  proto->set_pool_blocks(
      blocks(gauges.free_blocks + gauges.used_blocks + gauges.cached_blocks));
  proto->set_pool_free_blocks(blocks(gauges.free_blocks));
  proto->set_pool_used_blocks(blocks(gauges.used_blocks));
  proto->set_pool_cached_blocks(blocks(gauges.cached_blocks));
  proto->set_pool_evictions(gauges.evictions);
  proto->set_anchors(static_cast<std::uint32_t>(gauges.anchors));
  proto->set_preemptions(gauges.preemptions);
  proto->set_in_flight_waits(gauges.in_flight_waits);
  proto->set_late_owners(gauges.late_owners);
  const BlockPool::EvictionAges& ages = gauges.eviction_ages;
  for (std::size_t i = 0; i < ages.blocks.size(); ++i) {
    v1::EvictionAge& age = *proto->add_evictions_by_age();
    if (i < BlockPool::kAgeBounds.size()) {
      age.set_at_most_s(BlockPool::kAgeBounds[i]);
    }
    age.set_blocks(ages.blocks[i]);
  }
  proto->set_eviction_age_sum_s(ages.seconds);
  if (gauges.tiers != nullptr) FillPlanner(*gauges.tiers, *proto);
}

void ToProto(const ResponseCache::Stats& responses, v1::EngineStats* proto) {
  v1::ResponseCacheStats& to = *proto->mutable_responses();
  to.set_entries(responses.entries);
  to.set_bytes(responses.bytes);
  to.set_budget_bytes(responses.budget_bytes);
  to.set_hits(responses.hits);
  to.set_misses(responses.misses);
  to.set_evictions(responses.evictions);
}

}  // namespace holdfast::engine
