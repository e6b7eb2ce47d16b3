// The tokenizer of the generated models: 256 bytes, then merges trained on a
// text compiled in, then special tokens.
#ifndef HOLDFAST_ENGINE_MODEL_TESTING_TINY_TOKENIZER_H_
#define HOLDFAST_ENGINE_MODEL_TESTING_TINY_TOKENIZER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/testing/tiny_model.h"

namespace holdfast::model::testing {

struct TinyTokenizer {
  struct Added {
    std::uint32_t id = 0;
    bool special = false;
  };
  std::vector<std::string> tokens;  // byte-level alphabet; id = index
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<Added> added;
  std::uint32_t end_of_text = 0;  // also bos and pad
  std::uint32_t turn_end = 0;     // <|im_end|>
};

// With merges 1,024 tokens, without 263; the same on every call and machine.
TinyTokenizer MakeTinyTokenizer(bool with_merges);

// ChatML with system, user, assistant (reasoning of the turn in progress, tool
// calls) and tool messages, a list of tools, add_generation_prompt and
// enable_thinking. The Qwen3.5 family's writes calls as <function=...> and
// results into user turns, and opens every answer with a block of thinking,
// empty unless enable_thinking is true.
const char* TinyChatTemplate(const TinyModelOptions& options);

// What the merges are trained on; prompts of tests may be cut from it.
extern const char kTinyTrainingText[];

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_TINY_TOKENIZER_H_
