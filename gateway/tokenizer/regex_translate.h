// tokenizer.json writes its patterns for Oniguruma; we match with PCRE2.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_REGEX_TRANSLATE_H_
#define HOLDFAST_GATEWAY_TOKENIZER_REGEX_TRANSLATE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace holdfast::gateway {

// The pattern that makes PCRE2 (UTF and UCP on) match what Oniguruma matches
// for `pattern`, Unicode versions included. A construct whose meanings differ
// and that no known tokenizer needs is an INVALID_ARGUMENT that names it.
absl::StatusOr<std::string> TranslateRegex(std::string_view pattern);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_REGEX_TRANSLATE_H_
