// Bodies of POST /v1/chat/completions and /v1/completions as typed values.
// Pure functions. FIELDS.md lists every field: honoured, ignored, refused.
#ifndef HOLDFAST_GATEWAY_OPENAI_REQUEST_H_
#define HOLDFAST_GATEWAY_OPENAI_REQUEST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gateway/openai/error.h"

namespace holdfast::openai {

// What a request is checked against.
struct ServerFacts {
  std::string model;             // the served name
  std::uint32_t vocab_size = 0;  // ids at or above it are refused
  bool debug = false;            // engine runs with --debug
};

enum class CacheMode { kDefault, kBypass, kReadOnly };

// Where a field is absent the default below holds.
struct Sampling {
  float temperature = 1;
  std::uint32_t top_k = 0;       // 0: off
  float top_p = 1;               // 1: off
  float min_p = 0;               // 0: off
  float repetition_penalty = 1;  // 1: off
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::optional<std::uint64_t> seed;
  std::map<std::uint32_t, float> logit_bias;
};

// What the model is made to say (debug engines).
struct Force {
  std::string text;
  std::string reasoning;
  // {"name": string, "arguments": object}, in order.
  std::vector<Json> tool_calls;
  // Set: exactly these ids, and the fields above are empty.
  std::optional<std::vector<std::uint32_t>> ids;
  // The answer does not end by itself, but stands still behind all this.
  bool hold = false;
};

// Fields that both endpoints share.
struct CommonRequest {
  Sampling sampling;
  std::optional<std::uint32_t> max_tokens;  // absent: what the context leaves
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool stream = false;
  bool include_usage = false;
  // Log-probabilities of sampled tokens and of this many alternatives.
  std::optional<std::uint32_t> top_logprobs;
  std::string cache_salt;
  std::string session_id;  // of the body
  std::string cache_key;   // prompt_cache_key, else promptCacheKey
  CacheMode cache_mode = CacheMode::kDefault;
  bool align = true;  // answers are served as they were recorded
  bool digest = false;
  std::optional<Force> force;
};

inline constexpr std::int32_t kNoThinkingBudget = -1;

struct ChatRequest : CommonRequest {
  // As templates get them: "role" is system, user, assistant or tool,
  // "content" is always a string; besides, where the client sent them: name,
  // reasoning_content, tool_calls (arguments as an object, or as the client's
  // string when that is no JSON object), tool_call_id.
  Json messages = Json::array();
  Json tools;  // function tools, or null (none, or tool_choice "none")
  bool parallel_tool_calls = true;  // false: at most one
  Json template_kwargs = Json::object();
  // Tokens of reasoning before it is closed, or kNoThinkingBudget; absent: the
  // server's default.
  std::optional<std::int32_t> thinking_budget;
};

struct CompletionRequest : CommonRequest {
  std::variant<std::string, std::vector<std::uint32_t>> prompt;
};

// `body` is the parsed body (json.h). Every problem is a 400 (an unknown model
// a 404) that names the field.
ApiOr<ChatRequest> ParseChatRequest(const Json& body, const ServerFacts& facts);
ApiOr<CompletionRequest> ParseCompletionRequest(const Json& body,
                                                const ServerFacts& facts);

// A force value: a string, {"text","reasoning","tool_calls"} or {"ids"}, each
// object with "hold" or without.
// `path` names it in errors. ForcedIds (prompt.h) checks ids against the
// vocabulary.
ApiOr<Force> ParseForce(const Json& value, const std::string& path);

// The tokens that may be generated: max_tokens, at most what the context
// leaves. 400 (context_length_exceeded, on `param`) when it leaves no room for
// one.
ApiOr<std::uint32_t> ResolveMaxTokens(const CommonRequest& request,
                                      const char* param,
                                      std::uint64_t prompt_tokens,
                                      std::uint64_t context_tokens);

// The request's seed, or `random` cut to 53 bits, so that a JavaScript client
// can send back the seed that the answer reports. Greedy: 0 where absent.
std::uint64_t ResolveSeed(const CommonRequest& request, std::uint64_t random);

}  // namespace holdfast::openai

#endif  // HOLDFAST_GATEWAY_OPENAI_REQUEST_H_
