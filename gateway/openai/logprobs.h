// Log-probabilities in the shapes of both endpoints. Internal to
// gateway/openai.
#ifndef HOLDFAST_GATEWAY_OPENAI_LOGPROBS_H_
#define HOLDFAST_GATEWAY_OPENAI_LOGPROBS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "gateway/openai/response.h"

namespace holdfast::openai {

// {"content":[{"token","logprob","bytes","top_logprobs"}]}
Json ChatLogprobs(const std::vector<TokenLogprobs>& tokens);

// {"tokens","token_logprobs","top_logprobs","text_offset"}; the first token
// starts at `offset` characters of the answer.
Json CompletionLogprobs(const std::vector<TokenLogprobs>& tokens,
                        std::uint64_t offset);

// Text offsets count characters; a token that starts in the middle of one
// counts only those that it begins.
std::uint64_t CharactersStarted(std::string_view bytes);

}  // namespace holdfast::openai

#endif  // HOLDFAST_GATEWAY_OPENAI_LOGPROBS_H_
