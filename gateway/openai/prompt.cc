#include "gateway/openai/prompt.h"

#include <optional>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "gateway/openai/json.h"
#include "gateway/tokenizer/prompt_cache.h"
#include "gateway/tokenizer/protect_specials.h"
#include "gateway/tokenizer/tokenizer.h"

namespace holdfast::openai {
namespace {

constexpr std::size_t kContextsToTokenize = 4;

void CollectStrings(const Json& json, std::vector<std::string_view>* strings) {
  if (json.is_string()) {
    strings->push_back(json.get_ref<const std::string&>());
  } else if (json.is_array()) {
    for (const Json& entry : json) CollectStrings(entry, strings);
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.get_ref<const Json::object_t&>()) {
      strings->push_back(key);
      CollectStrings(value, strings);
    }
  }
}

// Breaks texts of special tokens in whatever the client wrote, names of
// parameters included.
class Protection {
 public:
  Protection(const gateway::SpecialProtector& protector, char32_t sentinel)
      : protector_(protector), sentinel_(sentinel) {}

  std::string Text(const std::string& text) const {
    return protector_.Protect(text, sentinel_);
  }

  Json Value(const Json& json) const {
    if (json.is_string()) return Text(json.get_ref<const std::string&>());
    if (json.is_array()) {
      Json result = Json::array();
      for (const Json& entry : json) result.push_back(Value(entry));
      return result;
    }
    if (json.is_object()) {
      Json::object_t result;
      for (const auto& [key, value] : json.get_ref<const Json::object_t&>()) {
        result.push_back(Json::object_t::value_type(Text(key), Value(value)));
      }
      return result;
    }
    return json;
  }

  // Keys and the role are our own.
  Json Message(const Json& message) const {
    Json result = Json::object();
    for (const auto& [key, value] : message.items()) {
      result[key] = key == "role" ? value : Value(value);
    }
    return result;
  }

  // Argument names are variables of the template.
  Json Arguments(const Json& arguments) const {
    Json result = Json::object();
    for (const auto& [key, value] : arguments.items()) {
      result[key] = Value(value);
    }
    return result;
  }

 private:
  const gateway::SpecialProtector& protector_;
  const char32_t sentinel_;
};

ApiOr<char32_t> ChooseSentinel(const ChatRequest& request) {
  std::vector<std::string_view> strings;
  CollectStrings(request.messages, &strings);
  CollectStrings(request.tools, &strings);
  CollectStrings(request.template_kwargs, &strings);
  const std::optional<char32_t> sentinel = gateway::PickSentinel(strings);
  if (!sentinel) {
    return FieldError("messages",
                      "every noncharacter from U+FDD0 to U+FDEF is in use");
  }
  return *sentinel;
}

// What the model wrote as tokens must come back as tokens.
Json AssistantMessage(const Json& message, const answer::AnswerFormat& format) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || format.prints_text_arguments) return message;
  Json result = message;
  for (Json& call : result["tool_calls"]) {
    Json& arguments = call["function"]["arguments"];
    if (arguments.is_object()) continue;
    Json object = Json::object();
    object["arguments"] = std::move(arguments);
    arguments = std::move(object);
  }
  return result;
}

templates::RenderInput ToRenderInput(const ChatRequest& request,
                                     const Protection& protection,
                                     const answer::AnswerFormat& format) {
  templates::RenderInput input;
  for (const Json& message : request.messages) {
    input.messages.push_back(message["role"] == "assistant"
                                 ? AssistantMessage(message, format)
                                 : protection.Message(message));
  }
  input.tools = protection.Value(request.tools);
  input.kwargs = protection.Arguments(request.template_kwargs);
  return input;
}

bool EndsInReasoning(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
    text.remove_suffix(1);
  }
  return text.ends_with(answer::kThink);
}

// A request that must leave no trace keeps no tokens in the gateway either.
absl::StatusOr<std::vector<std::uint32_t>> Encode(
    const CommonRequest& request, const PromptParts& parts,
    const std::string& text, const gateway::EncodeOptions& options) {
  if (request.cache_mode != CacheMode::kDefault) {
    return parts.tokenizer->Encode(text, options, LimitsOf(parts));
  }
  absl::StatusOr<gateway::EncodedPrompt> encoded =
      parts.cache->Encode(text, options, LimitsOf(parts));
  if (!encoded.ok()) return encoded.status();
  return std::move(encoded->ids);
}

ApiOr<BuiltPrompt> Finish(absl::StatusOr<std::vector<std::uint32_t>> ids,
                          const char* field, const PromptParts& parts) {
  if (absl::IsOutOfRange(ids.status())) {
    return CertainOverflow(field, parts.context_tokens);
  }
  if (!ids.ok()) return FromStatus(ids.status(), field);
  if (ids->empty()) return FieldError(field, "gives an empty prompt");
  BuiltPrompt prompt;
  ReplaceIds(*std::move(ids), parts, &prompt);
  return prompt;
}

ApiOr<std::string> Render(const ChatRequest& request, const PromptParts& parts,
                          char32_t sentinel) {
  const Protection protection(*parts.protector, sentinel);
  absl::StatusOr<std::string> text = parts.chat_template->Render(
      ToRenderInput(request, protection, *parts.format));
  if (!text.ok()) return FromStatus(text.status(), "messages");
  return *std::move(text);
}

std::string ForcedXmlCall(const Json& call) {
  std::string text =
      fmt::format("<function={}>\n", call["name"].get<std::string>());
  for (const auto& [name, value] : call["arguments"].items()) {
    text += fmt::format(
        "<parameter={}>\n{}\n</parameter>\n", name,
        value.is_string() ? value.get<std::string>() : DumpLikePython(value));
  }
  return text + "</function>";
}

ApiOr<std::string> ForcedText(const Force& force, const BuiltPrompt& prompt,
                              const answer::AnswerFormat& format) {
  std::string text;
  if (!force.reasoning.empty()) {
    if (!format.reasoning) {
      return FieldError("holdfast.force.reasoning",
                        "the model's chat template has no <think> block");
    }
    if (!prompt.ends_in_reasoning) text += "<think>" + format.after_think;
    text += force.reasoning;
  }
  if (!force.reasoning.empty() || prompt.ends_in_reasoning) {
    text += format.before_think_end + "</think>" + format.after_think_end;
  }
  text += force.text;
  const bool xml = format.calls == answer::CallSyntax::kQwenXml;
  std::string_view before;
  if (!force.text.empty()) before = format.before_call;
  for (const Json& call : force.tool_calls) {
    text += fmt::format("{}<tool_call>\n{}\n</tool_call>", before,
                        xml ? ForcedXmlCall(call) : DumpLikePython(call));
    before = "\n";
  }
  return text;
}

}  // namespace

gateway::EncodeLimits LimitsOf(const PromptParts& parts) {
  gateway::EncodeLimits limits;
  limits.stop = parts.stop;
  if (parts.context_tokens == 0) return limits;
  limits.most_ids = kContextsToTokenize * parts.context_tokens;
  limits.most_piece_ids = parts.context_tokens;
  return limits;
}

ApiOr<BuiltPrompt> BuildPrompt(const ChatRequest& request,
                               const PromptParts& parts) {
  if (parts.chat_template == nullptr) {
    return FieldError("messages",
                      "the model has no chat template: use /v1/completions");
  }
  const ApiOr<char32_t> sentinel = ChooseSentinel(request);
  if (!sentinel.ok()) return sentinel.error();
  const ApiOr<std::string> text = Render(request, parts, *sentinel);
  if (!text.ok()) return text.error();
  gateway::EncodeOptions options;  // a template writes the bos token itself
  options.sentinel = *sentinel;
  ApiOr<BuiltPrompt> prompt =
      Finish(Encode(request, parts, *text, options), "messages", parts);
  if (prompt.ok()) {
    prompt->ends_in_reasoning =
        parts.format->reasoning && EndsInReasoning(*text);
  }
  return prompt;
}

ApiOr<std::string> RenderText(const ChatRequest& request,
                              const PromptParts& parts) {
  const ApiOr<char32_t> sentinel = ChooseSentinel(request);
  if (!sentinel.ok()) return sentinel.error();
  return Render(request, parts, *sentinel);
}

void ReplaceIds(std::vector<std::uint32_t> ids, const PromptParts& parts,
                BuiltPrompt* prompt) {
  prompt->ids = std::move(ids);
  prompt->messages = parts.marks->Find(prompt->ids);
  prompt->answer_begin = 0;
  const std::size_t header = parts.marks->answer_header_tokens();
  if (!prompt->messages.empty() && header > 0 &&
      prompt->messages.back().role == templates::Role::kAssistant) {
    prompt->answer_begin = prompt->messages.back().position_tokens + header;
  }
}

ApiOr<BuiltPrompt> BuildPrompt(const CompletionRequest& request,
                               const PromptParts& parts) {
  if (const auto* ids =
          std::get_if<std::vector<std::uint32_t>>(&request.prompt)) {
    return Finish(*ids, "prompt", parts);
  }
  const std::string& text = std::get<std::string>(request.prompt);
  const TokenizerSpec& spec = parts.tokenizer->spec();
  gateway::EncodeOptions options;
  options.add_bos = spec.add_bos && (spec.bos_token.empty() ||
                                     !text.starts_with(spec.bos_token));
  return Finish(Encode(request, parts, text, options), "prompt", parts);
}

ApiOr<std::vector<std::uint32_t>> ThinkingEnd(std::int32_t budget,
                                              const PromptParts& parts) {
  if (!parts.format->reasoning) return std::vector<std::uint32_t>();
  constexpr std::string_view kWords =
      "\n\nI have thought for as long as I may and answer now.";
  const std::string text =
      fmt::format("{}{}{}", budget == 0 ? "" : kWords,
                  parts.format->before_think_end, answer::kThinkEnd);
  absl::StatusOr<std::vector<std::uint32_t>> ids =
      parts.tokenizer->Encode(text, gateway::EncodeOptions{});
  if (!ids.ok()) return FromStatus(ids.status(), "thinking_budget");
  return *std::move(ids);
}

ApiOr<std::vector<std::uint32_t>> ForcedIds(const Force& force,
                                            const BuiltPrompt& prompt,
                                            const PromptParts& parts) {
  const gateway::Tokenizer& tokenizer = *parts.tokenizer;
  if (force.ids) {
    for (const std::uint32_t id : *force.ids) {
      if (id >= tokenizer.vocab_size()) {
        return FieldError("holdfast.force.ids",
                          fmt::format("{} is no token id below {}", id,
                                      tokenizer.vocab_size()));
      }
    }
    return *force.ids;
  }
  const ApiOr<std::string> text = ForcedText(force, prompt, *parts.format);
  if (!text.ok()) return text.error();
  absl::StatusOr<std::vector<std::uint32_t>> ids =
      tokenizer.Encode(*text, gateway::EncodeOptions{}, LimitsOf(parts));
  if (!ids.ok()) return FromStatus(ids.status(), "holdfast.force");
  std::optional<std::uint32_t> end = parts.marks->end_of_turn();
  if (!end && !tokenizer.spec().eos_ids.empty()) {
    end = tokenizer.spec().eos_ids.front();
  }
  if (end && !force.hold) ids->push_back(*end);
  return *std::move(ids);
}

}  // namespace holdfast::openai
