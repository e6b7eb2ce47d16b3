// Reads a tokenizer out of a model's files. Whatever would change token ids and
// is not byte-level BPE as TokenizerSpec describes it is an error that names
// the key.
#ifndef HOLDFAST_ENGINE_MODEL_TOKENIZER_FILES_H_
#define HOLDFAST_ENGINE_MODEL_TOKENIZER_FILES_H_

#include <optional>
#include <string>

#include "engine/model/gguf.h"
#include "engine/model/json.h"
#include "kernels/status.h"
#include "shared/tokenizer_spec.h"

namespace holdfast::model {

// From tokenizer.ggml.* and tokenizer.chat_template. Pre-tokenizers are known
// by name; a name that is not known is an error.
kernels::StatusOr<TokenizerSpec> TokenizerFromGguf(const GgufFile& file);

// From a tokenizer.json; `file` is its path, for messages.
kernels::StatusOr<TokenizerSpec> TokenizerFromJson(JsonValue json,
                                                   const std::string& file);

// Adds what tokenizer_config.json has: special tokens by name, the chat
// template (the one named "default" of several), further added tokens.
kernels::Status AddTokenizerConfig(JsonValue json, const std::string& file,
                                   TokenizerSpec* spec);

// Adds eos_token_id (a number or a list) of generation_config.json or
// config.json.
kernels::Status AddEosIds(JsonValue json, const std::string& file,
                          TokenizerSpec* spec);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_TOKENIZER_FILES_H_
