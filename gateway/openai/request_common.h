// The fields that both endpoints share. Internal to gateway/openai.
#ifndef HOLDFAST_GATEWAY_OPENAI_REQUEST_COMMON_H_
#define HOLDFAST_GATEWAY_OPENAI_REQUEST_COMMON_H_

#include <optional>

#include "gateway/openai/request.h"

namespace holdfast::openai {

// Everything but prompt, messages, tools, template arguments and logprobs.
std::optional<ApiError> ParseCommon(const Json& body, const ServerFacts& facts,
                                    CommonRequest* request);

// Fields that would change the answer if they were honoured, and are not: an
// error when one of them has another value than the one that changes nothing.
std::optional<ApiError> RefuseUnsupported(const Json& body);

// The messages in the form that templates get.
ApiOr<Json> ParseMessages(const Json& body);

}  // namespace holdfast::openai

#endif  // HOLDFAST_GATEWAY_OPENAI_REQUEST_COMMON_H_
