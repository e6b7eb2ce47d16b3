// From a request to the token ids of its prompt.
#ifndef HOLDFAST_GATEWAY_OPENAI_PROMPT_H_
#define HOLDFAST_GATEWAY_OPENAI_PROMPT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gateway/answer/answer_format.h"
#include "gateway/openai/error.h"
#include "gateway/openai/request.h"
#include "gateway/template/chat_template.h"
#include "gateway/template/message_marks.h"

namespace holdfast::gateway {
class PromptCache;
class SpecialProtector;
class Tokenizer;
struct EncodeLimits;
}  // namespace holdfast::gateway

namespace holdfast::openai {

// What turns a model's requests into tokens; made once, after its tokenizer
// has been read. Thread-safe; the parts belong to the caller. The last two are
// a request's own.
struct PromptParts {
  const templates::ChatTemplate* chat_template = nullptr;  // null: has none
  const gateway::Tokenizer* tokenizer = nullptr;
  const templates::MessageMarks* marks = nullptr;
  const gateway::SpecialProtector* protector = nullptr;
  gateway::PromptCache* cache = nullptr;
  const answer::AnswerFormat* format = nullptr;
  // Text that surely has more tokens is not tokenized to its end; 0: no bound.
  std::uint32_t context_tokens = 0;
  // Nobody waits for the prompt any more; null: somebody always does.
  const std::atomic<bool>* stop = nullptr;
};

// Text of several times the context is no prompt: recorded tokens may take the
// place of text (align_prompt.h) and be fewer, but not as few as that.
gateway::EncodeLimits LimitsOf(const PromptParts& parts);

struct BuiltPrompt {
  std::vector<std::uint32_t> ids;
  std::vector<templates::MessageMark> messages;  // ascending
  // The prompt ends inside an open <think> block.
  bool ends_in_reasoning = false;
  // Of chats: the first token behind the header of the answer to come; 0 where
  // headers are not marked.
  std::size_t answer_begin = 0;
};

// Texts of special tokens in system, user and tool strings, tools and template
// arguments never become special tokens; those in the assistant's turns do. The
// arguments of a call that broke off are text that is no JSON object; where the
// template prints objects only, they become the value of a parameter
// "arguments".
ApiOr<BuiltPrompt> BuildPrompt(const ChatRequest& request,
                               const PromptParts& parts);
// The text that it tokenizes, with the sentinels that protect user text.
ApiOr<std::string> RenderText(const ChatRequest& request,
                              const PromptParts& parts);
// Other ids for the same prompt.
void ReplaceIds(std::vector<std::uint32_t> ids, const PromptParts& parts,
                BuiltPrompt* prompt);
// A text prompt is tokenized as it is, special tokens included (and the bos
// token first where the tokenizer asks for it); ids are taken as they are.
ApiOr<BuiltPrompt> BuildPrompt(const CompletionRequest& request,
                               const PromptParts& parts);

// The ids that close reasoning of `budget` tokens in the server's own words;
// they end with the tag </think>, and are nothing but an empty block's end
// where the budget allows no reasoning. Empty where the model's answers have
// none.
ApiOr<std::vector<std::uint32_t>> ThinkingEnd(std::int32_t budget,
                                              const PromptParts& parts);

// The ids of a forced answer, written as the model would: reasoning in a
// <think> block, tool calls in the syntax of its template (JSON where that has
// none), the end-of-turn token last but where it is held ({"ids"} is taken as
// it is). 400 when the model has no reasoning and the answer has.
ApiOr<std::vector<std::uint32_t>> ForcedIds(const Force& force,
                                            const BuiltPrompt& prompt,
                                            const PromptParts& parts);

}  // namespace holdfast::openai

#endif  // HOLDFAST_GATEWAY_OPENAI_PROMPT_H_
