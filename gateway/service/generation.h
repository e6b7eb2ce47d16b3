// A completion request made ready for the engine.
#ifndef HOLDFAST_GATEWAY_SERVICE_GENERATION_H_
#define HOLDFAST_GATEWAY_SERVICE_GENERATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gateway/answer/tools.h"
#include "gateway/engine/engine_link.h"
#include "gateway/openai/debug_answers.h"
#include "gateway/openai/error.h"
#include "gateway/openai/request.h"
#include "gateway/openai/session_key.h"
#include "holdfast/v1/engine.pb.h"

namespace holdfast::gateway {

enum class Endpoint { kChat, kCompletion };

struct Prepared {
  openai::CommonRequest common;
  v1::GenerateRequest request;
  bool in_reasoning = false;                   // the prompt opens <think>
  std::shared_ptr<const answer::Tools> tools;  // null: has none
};

struct PrepareInput {
  Endpoint endpoint = Endpoint::kChat;
  const openai::Json* body = nullptr;
  openai::HeaderKeys session;
  std::string request_id;
  const EngineView* view = nullptr;               // model set
  const openai::DebugAnswers* answers = nullptr;  // null: none
  std::uint64_t random = 0;                       // for an absent seed
};

// Checks fields, renders the template, tokenizes: may take long. Thread-safe.
openai::ApiOr<Prepared> Prepare(const PrepareInput& input);

// What the engine's refusal means for the client.
openai::ApiError RefusedError(const v1::Refused& refused,
                              std::uint32_t prompt_tokens);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_GENERATION_H_
