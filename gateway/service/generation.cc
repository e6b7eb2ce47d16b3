#include "gateway/service/generation.h"

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "gateway/openai/align_prompt.h"
#include "gateway/openai/prompt.h"
#include "gateway/service/served_model.h"
#include "gateway/tokenizer/tokenizer.h"

namespace holdfast::gateway {
namespace {

using openai::ApiOr;

v1::Role ToProto(templates::Role role) {
  switch (role) {
    case templates::Role::kSystem:
      return v1::ROLE_SYSTEM;
    case templates::Role::kUser:
      return v1::ROLE_USER;
    case templates::Role::kAssistant:
      return v1::ROLE_ASSISTANT;
    case templates::Role::kTool:
      return v1::ROLE_TOOL;
  }
  return v1::ROLE_UNSPECIFIED;
}

v1::CacheMode ToProto(openai::CacheMode mode) {
  switch (mode) {
    case openai::CacheMode::kDefault:
      return v1::CACHE_MODE_DEFAULT;
    case openai::CacheMode::kBypass:
      return v1::CACHE_MODE_BYPASS;
    case openai::CacheMode::kReadOnly:
      return v1::CACHE_MODE_READ_ONLY;
  }
  return v1::CACHE_MODE_DEFAULT;
}

void FillSampling(const openai::CommonRequest& common, std::uint64_t random,
                  v1::SamplingParams* out) {
  const openai::Sampling& sampling = common.sampling;
  out->set_temperature(sampling.temperature);
  out->set_top_k(sampling.top_k);
  out->set_top_p(sampling.top_p);
  out->set_min_p(sampling.min_p);
  out->set_seed(openai::ResolveSeed(common, random));
  out->set_repetition_penalty(sampling.repetition_penalty);
  out->set_presence_penalty(sampling.presence_penalty);
  out->set_frequency_penalty(sampling.frequency_penalty);
  for (const auto& [id, bias] : sampling.logit_bias)
    (*out->mutable_logit_bias())[id] = bias;
}

void FillPrompt(const openai::BuiltPrompt& prompt, v1::GenerateRequest* out) {
  out->mutable_prompt_ids()->Assign(prompt.ids.begin(), prompt.ids.end());
  for (const templates::MessageMark& mark : prompt.messages) {
    v1::MessagePosition* message = out->add_messages();
    message->set_position_tokens(mark.position_tokens);
    message->set_role(ToProto(mark.role));
  }
}

void FillRest(const PrepareInput& input, const openai::CommonRequest& common,
              v1::GenerateRequest* out) {
  out->set_request_id(input.request_id);
  out->set_fingerprint(input.view->fingerprint);
  out->set_salt(common.cache_salt);
  out->set_cache_mode(ToProto(common.cache_mode));
  FillSampling(common, input.random, out->mutable_sampling());
  for (const std::string& stop : common.stop) out->add_stop_strings(stop);
  out->set_ignore_eos(common.ignore_eos);
  if (common.top_logprobs.has_value())
    out->set_top_logprobs(*common.top_logprobs);
  out->set_digest(common.digest);
}

// The answer to force: the request's own, else the one that --debug-answers has
// for its last message.
ApiOr<std::optional<openai::Force>> ChosenForce(
    const PrepareInput& input, const openai::ChatRequest& request) {
  if (request.force.has_value()) return request.force;
  if (input.answers == nullptr) return std::optional<openai::Force>();
  if (!input.view->status.debug()) {
    return openai::Unavailable(
        "--debug-answers needs an engine started with --debug", 5000);
  }
  const auto found = input.answers->Find(request);
  if (!found.ok()) return openai::FromStatus(found.status(), "messages");
  if (*found == nullptr) return std::optional<openai::Force>();
  return std::optional<openai::Force>(**found);
}

const char* PromptField(Endpoint endpoint) {
  return endpoint == Endpoint::kChat ? "messages" : "prompt";
}

// What the answer of a chat is read with. A model that may make one call only
// is stopped behind the first.
void FillTools(openai::ChatRequest* request, const answer::AnswerFormat& format,
               Prepared* prepared) {
  if (request->tools.is_null()) return;
  prepared->tools = std::make_shared<answer::Tools>(std::move(request->tools));
  if (!request->parallel_tool_calls &&
      format.calls != answer::CallSyntax::kNone) {
    prepared->request.add_stop_strings(std::string(answer::kToolCallEnd));
  }
}

// Nothing to do where there is no budget, or the model does not think.
std::optional<openai::ApiError> FillThinkingBudget(
    std::int32_t budget, const openai::BuiltPrompt& prompt,
    const openai::PromptParts& parts, v1::GenerateRequest* out) {
  if (budget == openai::kNoThinkingBudget) return std::nullopt;
  auto words = openai::ThinkingEnd(budget, parts);
  if (!words.ok()) return words.error();
  if (words->empty()) return std::nullopt;
  v1::ThinkingBudget* const thinking = out->mutable_thinking_budget();
  thinking->set_tokens(static_cast<std::uint32_t>(budget));
  thinking->set_open(prompt.ends_in_reasoning);
  thinking->set_open_tag(std::string(answer::kThink));
  thinking->set_close_tag(std::string(answer::kThinkEnd));
  if (const auto id = parts.tokenizer->FindAdded(answer::kThink))
    thinking->set_open_id(*id);
  if (const auto id = parts.tokenizer->FindAdded(answer::kThinkEnd))
    thinking->set_close_id(*id);
  thinking->mutable_words()->Assign(words->begin(), words->end());
  return std::nullopt;
}

// Tools that the model never sees would give an answer to another question.
std::optional<openai::ApiError> CheckTools(const openai::ChatRequest& request,
                                           const answer::AnswerFormat& format) {
  if (request.tools.is_null() || format.shows_tools) return std::nullopt;
  return openai::UnsupportedError(
      "tools",
      "the model's chat template shows it no tools: send none, or "
      "\"tool_choice\": \"none\"");
}

// Puts recorded tokens in the place of the client's text.
void Align(const PrepareInput& input, const openai::ChatRequest& request,
           const openai::PromptParts& parts, const Records& records,
           openai::BuiltPrompt* prompt, Prepared* prepared) {
  prepared->aligned.emplace();
  auto alignment = openai::AlignPrompt(
      request, *input.body, *prompt, parts, records,
      {.without_reasoning = input.align_reasoning, .random = input.random});
  if (!alignment || alignment->rules.empty()) return;
  // What was taken out of the client's copy must not cost it its place.
  const std::uint32_t context = input.view->status.max_context_tokens();
  if (alignment->ids.size() >= context && prompt->ids.size() < context) return;
  openai::ReplaceIds(std::move(alignment->ids), parts, prompt);
  prepared->aligned = std::move(alignment->rules);
}

template <typename Request>
ApiOr<Prepared> Finish(const PrepareInput& input, const Parsed& parsed,
                       Request request, const Records& records) {
  const std::uint32_t context = input.view->status.max_context_tokens();
  openai::PromptParts parts = input.view->model->parts();
  parts.context_tokens = context;
  parts.stop = input.stop;
  Prepared prepared;
  if constexpr (std::is_same_v<Request, openai::ChatRequest>) {
    if (auto error = CheckTools(request, *parts.format))
      return *std::move(error);
  }
  auto prompt = openai::BuildPrompt(request, parts);
  if (!prompt.ok()) return prompt.error();
  if constexpr (std::is_same_v<Request, openai::ChatRequest>)
    Align(input, request, parts, records, &*prompt, &prepared);
  auto max_tokens = openai::ResolveMaxTokens(
      request, PromptField(input.endpoint), prompt->ids.size(), context);
  if (!max_tokens.ok()) return max_tokens.error();

  FillPrompt(*prompt, &prepared.request);
  FillRest(input, request, &prepared.request);
  prepared.request.set_session_key(parsed.session_key);
  prepared.request.set_max_tokens(*max_tokens);
  if (parsed.force.has_value()) {
    auto ids = openai::ForcedIds(*parsed.force, *prompt, parts);
    if (!ids.ok()) return ids.error();
    prepared.request.set_force(true);
    prepared.request.set_hold(parsed.force->hold);
    prepared.request.mutable_forced_ids()->Assign(ids->begin(), ids->end());
  }
  prepared.in_reasoning = prompt->ends_in_reasoning;
  if constexpr (std::is_same_v<Request, openai::ChatRequest>) {
    const bool recorded = !parsed.session_key.empty() &&
                          request.cache_mode == openai::CacheMode::kDefault;
    if (recorded && prompt->answer_begin > 0) {
      prepared.answer_begin = prompt->answer_begin;
      prepared.request.set_record_ticket(input.record_ticket);
    }
    FillTools(&request, *parts.format, &prepared);
    if (auto error = FillThinkingBudget(
            request.thinking_budget.value_or(input.thinking_budget), *prompt,
            parts, &prepared.request)) {
      return *std::move(error);
    }
  }
  prepared.common = std::move(static_cast<openai::CommonRequest&>(request));
  return prepared;
}

}  // namespace

const openai::CommonRequest& Parsed::common() const {
  if (const auto* chat = std::get_if<openai::ChatRequest>(&request))
    return *chat;
  return std::get<openai::CompletionRequest>(request);
}

ApiOr<Parsed> Parse(const PrepareInput& input) {
  const v1::EngineStatus& status = input.view->status;
  const openai::ServerFacts facts{.model = status.model_name(),
                                  .vocab_size = status.vocab_size(),
                                  .debug = status.debug()};
  Parsed parsed;
  if (input.endpoint == Endpoint::kCompletion) {
    auto request = openai::ParseCompletionRequest(*input.body, facts);
    if (!request.ok()) return request.error();
    parsed.force = request->force;
    parsed.request = *std::move(request);
  } else {
    auto request = openai::ParseChatRequest(*input.body, facts);
    if (!request.ok()) return request.error();
    auto force = ChosenForce(input, *request);
    if (!force.ok()) return force.error();
    parsed.force = *std::move(force);
    parsed.request = *std::move(request);
  }
  auto session = std::visit(
      [&](const auto& request) {
        return openai::SessionKey(request, input.session);
      },
      parsed.request);
  if (!session.ok()) return session.error();
  parsed.session_key = *std::move(session);
  parsed.wants_records =
      input.endpoint == Endpoint::kChat && input.align &&
      parsed.common().align && !parsed.session_key.empty() &&
      parsed.common().cache_mode != openai::CacheMode::kBypass;
  return parsed;
}

ApiOr<Prepared> Prepare(const PrepareInput& input, Parsed parsed,
                        const Records& records) {
  return std::visit(
      [&](auto& request) {
        return Finish(input, parsed, std::move(request), records);
      },
      parsed.request);
}

openai::ApiError RefusedError(const v1::Refused& refused, Endpoint endpoint,
                              std::uint32_t prompt_tokens) {
  switch (refused.reason()) {
    case v1::Refused::QUEUE_FULL:
      return openai::QueueFull(refused.message(), refused.retry_after_ms());
    case v1::Refused::DRAINING:
    case v1::Refused::OUT_OF_BLOCKS:
    case v1::Refused::MODEL_CHANGED:
      return openai::Unavailable(refused.message(), refused.retry_after_ms());
    case v1::Refused::CONTEXT_OVERFLOW:
      return openai::ContextOverflow(PromptField(endpoint), prompt_tokens,
                                     refused.max_context_tokens());
    case v1::Refused::INVALID:
      return openai::FieldError("", refused.message());
    case v1::Refused::DEBUG_ONLY:
      return openai::UnsupportedError("holdfast", refused.message());
    default:
      return openai::InternalError("the engine refused: " + refused.message());
  }
}

}  // namespace holdfast::gateway
