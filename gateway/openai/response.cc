#include "gateway/openai/response.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "gateway/openai/json.h"
#include "gateway/openai/logprobs.h"

namespace holdfast::openai {
namespace {

const char* Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
  }
  return "stop";
}

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return hex;
}

Json HexOrNull(const std::string& bytes) {
  return bytes.empty() ? Json(nullptr) : Json(Hex(bytes));
}

Json Head(const AnswerHead& head, const char* object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created_unix_s},
          {"model", head.model},
          {"system_fingerprint", head.system_fingerprint}};
}

Json Choice(Json body, const char* body_name, Json logprobs, Json finish) {
  return Json::array({{{"index", 0},
                       {body_name, std::move(body)},
                       {"logprobs", std::move(logprobs)},
                       {"finish_reason", std::move(finish)}}});
}

Json StreamHead(const AnswerHead& head, const char* object,
                bool include_usage) {
  Json chunk = Head(head, object);
  chunk["choices"] = Json::array();
  if (include_usage) chunk["usage"] = nullptr;
  return chunk;
}

Json Function(const std::string& name, const std::string& arguments) {
  return {{"name", name}, {"arguments", arguments}};
}

Json Message(const AnswerHead& head, const Answer& answer) {
  const bool other = !answer.reasoning.empty() || !answer.tool_calls.empty();
  Json message = {{"role", "assistant"}};
  message["content"] =
      answer.text.empty() && other ? Json(nullptr) : Json(answer.text);
  if (!answer.reasoning.empty()) {
    message["reasoning_content"] = answer.reasoning;
  }
  for (std::size_t i = 0; i < answer.tool_calls.size(); ++i) {
    const ToolCall& call = answer.tool_calls[i];
    message["tool_calls"].push_back(
        {{"id", ToolCallId(head.id, i)},
         {"type", "function"},
         {"function", Function(call.name, call.arguments)}});
  }
  return message;
}

}  // namespace

std::string ChatId(std::uint64_t random_high, std::uint64_t random_low) {
  return fmt::format("chatcmpl-{:016x}{:016x}", random_high, random_low);
}

std::string CompletionId(std::uint64_t random_high, std::uint64_t random_low) {
  return fmt::format("cmpl-{:016x}{:016x}", random_high, random_low);
}

std::string ToolCallId(std::string_view chat_id, std::size_t index) {
  constexpr std::size_t kRandom = 20;
  const std::size_t begin = chat_id.size() - std::min(chat_id.size(), kRandom);
  return fmt::format("call_{}{:04x}", std::string(chat_id.substr(begin)),
                     index);
}

std::string SystemFingerprint(std::string_view fingerprint) {
  return "fp_" + Hex(fingerprint.substr(0, 6));
}

Json HoldfastJson(const HoldfastReport& report) {
  Json by_source = Json::object();
  for (const auto& [source, tokens] : report.cached_by_source) {
    by_source[source] = tokens;
  }
  Json json = {
      {"cache_source", report.cache_source},
      {"cached_by_source", std::move(by_source)},
      {"anchor", report.anchor.empty() ? Json(nullptr) : Json(report.anchor)},
      {"resumed_at_tokens", report.resumed_at_tokens},
      {"computed_tokens", report.computed_tokens},
      {"queue_ms", report.queue_ms},
      {"prefill_ms", report.prefill_ms},
      {"decode_ms", report.decode_ms},
      {"miss_reason",
       report.miss_reason.empty() ? Json(nullptr) : Json(report.miss_reason)}};
  if (report.seed) json["seed"] = *report.seed;
  if (report.aligned) json["aligned"] = *report.aligned;
  if (report.prompt_ids) json["prompt_ids"] = *report.prompt_ids;
  if (report.output_ids) json["output_ids"] = *report.output_ids;
  if (report.digests) {
    json["digests"] = {
        {"first_logits", HexOrNull(report.digests->first_logits)},
        {"resumed", HexOrNull(report.digests->resumed)},
        {"prompt_end", HexOrNull(report.digests->prompt_end)},
        {"end", HexOrNull(report.digests->end)}};
    if (report.digests->taint)
      json["digests"]["taint"] = *report.digests->taint;
  }
  return json;
}

Json UsageJson(const Usage& usage) {
  Json json = {
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens",
       std::uint64_t{usage.prompt_tokens} + usage.completion_tokens},
      {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
  if (usage.reasoning_tokens) {
    json["completion_tokens_details"] = {
        {"reasoning_tokens", *usage.reasoning_tokens}};
  }
  return json;
}

Json ChatCompletion(const AnswerHead& head, const Answer& answer) {
  Json body = Head(head, "chat.completion");
  body["choices"] =
      Choice(Message(head, answer), "message",
             answer.logprobs ? ChatLogprobs(*answer.logprobs) : Json(nullptr),
             Name(answer.finish));
  body["usage"] = UsageJson(answer.usage);
  body["holdfast"] = HoldfastJson(answer.holdfast);
  return body;
}

ChatChunks::ChatChunks(AnswerHead head, bool include_usage)
    : head_(std::move(head)), include_usage_(include_usage) {}

Json ChatChunks::Chunk() const {
  return StreamHead(head_, "chat.completion.chunk", include_usage_);
}

Json ChatChunks::Role() const {
  Json chunk = Chunk();
  chunk["choices"] = Choice({{"role", "assistant"}, {"content", ""}}, "delta",
                            nullptr, nullptr);
  return chunk;
}

Json ChatChunks::Delta(Json delta,
                       const std::vector<TokenLogprobs>* logprobs) const {
  Json chunk = Chunk();
  chunk["choices"] = Choice(
      std::move(delta), "delta",
      logprobs != nullptr ? ChatLogprobs(*logprobs) : Json(nullptr), nullptr);
  return chunk;
}

Json ChatChunks::Content(const std::string& text,
                         const std::vector<TokenLogprobs>* logprobs) const {
  return Delta({{"content", text}}, logprobs);
}

Json ChatChunks::Reasoning(const std::string& text,
                           const std::vector<TokenLogprobs>* logprobs) const {
  return Delta({{"reasoning_content", text}}, logprobs);
}

Json ChatChunks::ToolCallStart(
    std::size_t index, const std::string& name,
    const std::vector<TokenLogprobs>* logprobs) const {
  Json call = {{"index", index},
               {"id", ToolCallId(head_.id, index)},
               {"type", "function"},
               {"function", Function(name, "")}};
  return Delta({{"tool_calls", Json::array({std::move(call)})}}, logprobs);
}

Json ChatChunks::ToolCallArguments(
    std::size_t index, const std::string& text,
    const std::vector<TokenLogprobs>* logprobs) const {
  Json call = {{"index", index}};
  call["function"]["arguments"] = text;
  return Delta({{"tool_calls", Json::array({std::move(call)})}}, logprobs);
}

Json ChatChunks::Finish(FinishReason reason,
                        const HoldfastReport& report) const {
  Json chunk = Chunk();
  chunk["choices"] = Choice(Json::object(), "delta", nullptr, Name(reason));
  chunk["holdfast"] = HoldfastJson(report);
  return chunk;
}

Json ChatChunks::UsageOnly(const Usage& usage) const {
  Json chunk = Chunk();
  chunk["usage"] = UsageJson(usage);
  return chunk;
}

Json Completion(const AnswerHead& head, const Answer& answer) {
  Json body = Head(head, "text_completion");
  body["choices"] = Choice(
      answer.text, "text",
      answer.logprobs ? CompletionLogprobs(*answer.logprobs, 0) : Json(nullptr),
      Name(answer.finish));
  body["usage"] = UsageJson(answer.usage);
  body["holdfast"] = HoldfastJson(answer.holdfast);
  return body;
}

CompletionChunks::CompletionChunks(AnswerHead head, bool include_usage)
    : head_(std::move(head)), include_usage_(include_usage) {}

Json CompletionChunks::Chunk() const {
  return StreamHead(head_, "text_completion", include_usage_);
}

Json CompletionChunks::Text(const std::string& text,
                            const std::vector<TokenLogprobs>* logprobs) {
  Json chunk = Chunk();
  Json logprobs_json;
  if (logprobs != nullptr) {
    logprobs_json = CompletionLogprobs(*logprobs, offset_);
    for (const TokenLogprobs& token : *logprobs) {
      offset_ += CharactersStarted(token.sampled.bytes);
    }
  }
  chunk["choices"] = Choice(text, "text", std::move(logprobs_json), nullptr);
  return chunk;
}

Json CompletionChunks::Finish(FinishReason reason,
                              const HoldfastReport& report) const {
  Json chunk = Chunk();
  chunk["choices"] = Choice("", "text", nullptr, Name(reason));
  chunk["holdfast"] = HoldfastJson(report);
  return chunk;
}

Json CompletionChunks::UsageOnly(const Usage& usage) const {
  Json chunk = Chunk();
  chunk["usage"] = UsageJson(usage);
  return chunk;
}

std::string SseData(const Json& json) {
  return fmt::format("data: {}\n\n", Dump(json));
}

}  // namespace holdfast::openai
