// JSON in and out of the gateway, with limits that make every body harmless.
#ifndef HOLDFAST_GATEWAY_OPENAI_JSON_H_
#define HOLDFAST_GATEWAY_OPENAI_JSON_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "gateway/openai/error.h"

namespace holdfast::openai {

struct JsonLimits {
  int depth = 64;
};

// Parses a body. Of a key that is given twice the last value counts. The error
// names the field in which the text breaks, and invalid UTF-8 as such.
ApiOr<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// One line; invalid UTF-8 (of which there should be none) becomes U+FFFD.
std::string Dump(const Json& json);

// As Python's json.dumps(ensure_ascii=False) writes it, which templates' tojson
// and models' tool calls use: ", " and ": " between items.
std::string DumpLikePython(const Json& json);

}  // namespace holdfast::openai

#endif  // HOLDFAST_GATEWAY_OPENAI_JSON_H_
