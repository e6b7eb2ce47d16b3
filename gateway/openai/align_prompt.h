// A rendered chat against the session's records: which of the records' tokens
// are served for the client's copies of answers (shared/align).
#ifndef HOLDFAST_GATEWAY_OPENAI_ALIGN_PROMPT_H_
#define HOLDFAST_GATEWAY_OPENAI_ALIGN_PROMPT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "gateway/openai/error.h"
#include "gateway/openai/prompt.h"
#include "gateway/openai/request.h"
#include "shared/align/align.h"

namespace holdfast::openai {

using RecordList = std::span<const std::shared_ptr<const align::Record>>;

struct AlignOptions {
  // Off: an answer sent back without its reasoning stays as it is.
  bool without_reasoning = true;
  // Makes the words that probe the template no client's.
  std::uint64_t random = 0;
};

// The alignment with the record of which the prompt has most. Nothing where
// there is no record, or the template's answers cannot be told apart in its
// rendering (message marks). `body`: what the request was parsed from.
//
// A template that shows anything of an answer but white space differently than
// the client has it, or leaves out reasoning, gets its own rendering served.
std::optional<align::Alignment> AlignPrompt(
    const ChatRequest& request, const Json& body, const BuiltPrompt& prompt,
    const PromptParts& parts, RecordList records, const AlignOptions& options);

}  // namespace holdfast::openai

#endif  // HOLDFAST_GATEWAY_OPENAI_ALIGN_PROMPT_H_
