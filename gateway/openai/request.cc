#include "gateway/openai/request.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "gateway/openai/fields.h"
#include "gateway/openai/json.h"
#include "gateway/openai/request_common.h"

namespace holdfast::openai {
namespace {

constexpr std::uint32_t kMaxTopLogprobs = 20;
constexpr std::size_t kMaxTemplateArguments = 64;
constexpr std::size_t kMaxSessionBytes = 512;
constexpr std::size_t kMaxEffortBytes = 64;
constexpr std::uint64_t kSafeIntegers = (std::uint64_t{1} << 53) - 1;

void ParseChatLogprobs(Fields* fields, ChatRequest* request) {
  bool wanted = false;
  std::optional<std::uint32_t> top;
  fields->Bool("logprobs", &wanted);
  fields->Uint("top_logprobs", 0, kMaxTopLogprobs, &top);
  if (top.value_or(0) > 0 && !wanted) {
    return fields->Fail("top_logprobs", "needs logprobs: true");
  }
  if (wanted) request->top_logprobs = top.value_or(0);
}

// Function tools as the client wrote them; others are for other servers.
void ParseTools(Fields* fields, ChatRequest* request) {
  const Json* tools = fields->Find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) {
    return fields->Fail(
        "tools", fmt::format("must be an array, not {}", TypeName(*tools)));
  }
  Json functions = Json::array();
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const auto fail = [&](const char* where, const char* message) {
      fields->Fail(fmt::format("tools[{}]{}", i, where).c_str(), message);
    };
    if (!tool.is_object()) return fail("", "must be an object");
    const auto type = tool.find("type");
    if (type == tool.end() || !type->is_string()) {
      return fail(".type", "must be a string");
    }
    if (*type != "function") continue;
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object()) {
      return fail(".function", "must be an object");
    }
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string() ||
        name->get_ref<const std::string&>().empty()) {
      return fail(".function.name", "must be a non-empty string");
    }
    functions.push_back(tool);
  }
  const Json* choice = fields->Find("tool_choice");
  const bool forbidden = choice != nullptr && *choice == "none";
  if (!functions.empty() && !forbidden) request->tools = std::move(functions);
}

void ParseTemplateArguments(Fields* fields, ChatRequest* request) {
  constexpr const char* kName = "chat_template_kwargs";
  const Json* arguments = fields->Find(kName);
  if (arguments == nullptr) return;
  if (!arguments->is_object()) {
    return fields->Fail(
        kName, fmt::format("must be an object, not {}", TypeName(*arguments)));
  }
  if (arguments->size() > kMaxTemplateArguments) {
    return fields->Fail(
        kName, fmt::format("has over {} entries", kMaxTemplateArguments));
  }
  for (const char* taken :
       {"messages", "tools", "documents", "add_generation_prompt"}) {
    if (arguments->contains(taken)) {
      return fields->Fail(fmt::format("{}.{}", kName, taken).c_str(),
                          "is taken from the request itself");
    }
  }
  request->template_kwargs = *arguments;
}

// Switches that are variables of templates; chat_template_kwargs wins.
void ParseThinking(Fields* fields, ChatRequest* request) {
  Json& variables = request->template_kwargs;
  const auto set = [&variables](const char* name, Json value) {
    if (!variables.contains(name)) variables[name] = std::move(value);
  };
  if (fields->Find("enable_thinking") != nullptr) {
    bool enable = false;
    fields->Bool("enable_thinking", &enable);
    set("enable_thinking", enable);
  }
  std::string effort;
  fields->String("reasoning_effort", kMaxEffortBytes, &effort);
  if (effort.empty()) return;
  set("reasoning_effort", effort);
  if (effort == "none") set("enable_thinking", false);
}

void ParseThinkingBudget(Fields* fields, ChatRequest* request) {
  constexpr const char* kName = "thinking_budget";
  const Json* budget = fields->Find(kName);
  if (budget == nullptr) return;
  if (budget->is_number_integer() && budget->get<std::int64_t>() == -1) {
    request->thinking_budget = kNoThinkingBudget;
    return;
  }
  std::optional<std::uint32_t> tokens;
  fields->Uint(kName, 0, INT32_MAX, &tokens);
  if (tokens) request->thinking_budget = static_cast<std::int32_t>(*tokens);
}

// One prompt: text, token ids, or an array that holds one of these.
void ParsePrompt(Fields* fields, std::uint32_t vocab_size,
                 std::optional<ApiError>* error, CompletionRequest* request) {
  const Json* prompt = fields->Find("prompt");
  if (prompt == nullptr) return fields->Fail("prompt", "is required");
  std::string path = "prompt";
  if (prompt->is_array() && !prompt->empty() && !prompt->front().is_number()) {
    if (prompt->size() > 1) {
      return fields->Fail("prompt", "only one prompt a request is offered");
    }
    prompt = &prompt->front();
    path = "prompt[0]";
  }
  if (prompt->is_string()) {
    request->prompt = prompt->get<std::string>();
    return;
  }
  if (!prompt->is_array()) {
    return fields->Fail("prompt",
                        fmt::format("must be a string or an array of token "
                                    "ids, not {}",
                                    TypeName(*prompt)));
  }
  ApiOr<std::vector<std::uint32_t>> ids = TokenIds(*prompt, path, vocab_size);
  if (!ids.ok()) {
    *error = ids.error();
  } else if (ids->empty()) {
    fields->Fail("prompt", "is empty");
  } else {
    request->prompt = std::move(*ids);
  }
}

}  // namespace

ApiOr<ChatRequest> ParseChatRequest(const Json& body,
                                    const ServerFacts& facts) {
  ChatRequest request;
  std::optional<ApiError> error = ParseCommon(body, facts, &request);
  if (error) return *std::move(error);
  Fields fields(body, "", &error);
  ParseChatLogprobs(&fields, &request);
  ParseTools(&fields, &request);
  ParseTemplateArguments(&fields, &request);
  ParseThinking(&fields, &request);
  fields.Bool("parallel_tool_calls", &request.parallel_tool_calls);
  ParseThinkingBudget(&fields, &request);
  if (error) return *std::move(error);
  ApiOr<Json> messages = ParseMessages(body);
  if (!messages.ok()) return messages.error();
  request.messages = std::move(*messages);
  return request;
}

ApiOr<CompletionRequest> ParseCompletionRequest(const Json& body,
                                                const ServerFacts& facts) {
  CompletionRequest request;
  std::optional<ApiError> error = ParseCommon(body, facts, &request);
  if (error) return *std::move(error);
  Fields fields(body, "", &error);
  fields.Uint("logprobs", 0, kMaxTopLogprobs, &request.top_logprobs);
  ParsePrompt(&fields, facts.vocab_size, &error, &request);
  if (fields.Find("thinking_budget") != nullptr) {
    fields.Fail("thinking_budget",
                "reasoning is told from the rest in chats only");
  }
  if (error) return *std::move(error);
  return request;
}

ApiOr<std::uint32_t> ResolveMaxTokens(const CommonRequest& request,
                                      const char* param,
                                      std::uint64_t prompt_tokens,
                                      std::uint64_t context_tokens) {
  if (prompt_tokens >= context_tokens) {
    return ContextOverflow(param, prompt_tokens, context_tokens);
  }
  const std::uint64_t room = context_tokens - prompt_tokens;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(request.max_tokens.value_or(UINT32_MAX), room));
}

std::uint64_t ResolveSeed(const CommonRequest& request, std::uint64_t random) {
  if (request.sampling.seed) return *request.sampling.seed;
  return request.sampling.temperature == 0 ? 0 : random & kSafeIntegers;
}

}  // namespace holdfast::openai
