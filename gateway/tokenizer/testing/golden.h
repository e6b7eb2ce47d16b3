// Golden tokenizers and cases, and random texts, for the tests.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_TESTING_GOLDEN_H_
#define HOLDFAST_GATEWAY_TOKENIZER_TESTING_GOLDEN_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/tokenizer/tokenizer.h"
#include "shared/tokenizer_spec.h"

namespace holdfast::gateway::testing {

inline constexpr const char* kGoldenTokenizers[] = {"smollm_like", "qwen_like",
                                                    "normalizing"};

// Of tests/golden/tokenizer/NAME.json. A small reader for the files that the
// golden script writes; it throws at anything else.
TokenizerSpec GoldenSpec(const std::string& name);
std::unique_ptr<Tokenizer> GoldenTokenizer(const std::string& name);

struct GoldenCase {
  std::string text;
  std::vector<std::uint32_t> ids;
  std::vector<std::uint32_t> plain;  // without added tokens
};
std::vector<GoldenCase> ReadCases(const std::string& path);

// Text of `pieces` random pieces: words, marks, spaces, line ends, digits,
// emoji, scripts, and parts of `look_alikes`.
std::string RandomText(std::mt19937& random, int pieces,
                       const std::vector<std::string>& look_alikes);

}  // namespace holdfast::gateway::testing

#endif  // HOLDFAST_GATEWAY_TOKENIZER_TESTING_GOLDEN_H_
