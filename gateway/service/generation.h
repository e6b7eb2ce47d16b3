// A completion request made ready for the engine.
#ifndef HOLDFAST_GATEWAY_SERVICE_GENERATION_H_
#define HOLDFAST_GATEWAY_SERVICE_GENERATION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gateway/answer/tools.h"
#include "gateway/engine/engine_link.h"
#include "gateway/openai/debug_answers.h"
#include "gateway/openai/error.h"
#include "gateway/openai/request.h"
#include "gateway/openai/session_key.h"
#include "gateway/service/record_cache.h"
#include "holdfast/v1/engine.pb.h"
#include "shared/align/align.h"

namespace holdfast::gateway {

enum class Endpoint { kChat, kCompletion };

struct Prepared {
  openai::CommonRequest common;
  v1::GenerateRequest request;
  bool in_reasoning = false;                   // the prompt opens <think>
  std::shared_ptr<const answer::Tools> tools;  // null: has none
  // Chats: by which rules the prompt is another than the client's text.
  std::optional<std::vector<align::Rule>> aligned;
  // As in BuiltPrompt; 0: what is sent is not recorded.
  std::size_t answer_begin = 0;
};

struct PrepareInput {
  Endpoint endpoint = Endpoint::kChat;
  const openai::Json* body = nullptr;
  openai::HeaderKeys session;
  std::string request_id;
  const EngineView* view = nullptr;               // model set
  const openai::DebugAnswers* answers = nullptr;  // null: none
  std::uint64_t random = 0;                       // for an absent seed
  std::uint64_t record_ticket = 0;                // random too, not 0
  bool align = true;                              // as the flags say
  bool align_reasoning = true;
  // Where the request has none.
  std::int32_t thinking_budget = openai::kNoThinkingBudget;
  // The client has gone: what is under way ends early, with an error for
  // nobody. May be null.
  const std::atomic<bool>* stop = nullptr;
};

// A request whose fields are known to be right.
struct Parsed {
  std::variant<openai::ChatRequest, openai::CompletionRequest> request;
  std::optional<openai::Force> force;
  std::string session_key;
  // The session's records are of use.
  bool wants_records = false;

  const openai::CommonRequest& common() const;
};

// Checks the fields. Thread-safe, like Prepare.
openai::ApiOr<Parsed> Parse(const PrepareInput& input);
// Renders the template, tokenizes, aligns: may take long. `records` are the
// session's.
openai::ApiOr<Prepared> Prepare(const PrepareInput& input, Parsed parsed,
                                const Records& records);

// What the engine's refusal means for the client.
openai::ApiError RefusedError(const v1::Refused& refused, Endpoint endpoint,
                              std::uint32_t prompt_tokens);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_GENERATION_H_
