// The bytes that a token adds to the output.
#ifndef HOLDFAST_ENGINE_OUTPUT_TOKEN_BYTES_H_
#define HOLDFAST_ENGINE_OUTPUT_TOKEN_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/tokenizer_spec.h"

namespace holdfast::engine {

// Bytes by token id, decoded once from the vocabulary's byte-level alphabet
// (GPT-2's: each byte has a printable character of its own). An added token is
// its content as it stands; a special one adds nothing. Immutable.
class TokenBytes {
 public:
  explicit TokenBytes(const TokenizerSpec& spec);

  // Empty for ids past the vocabulary.
  std::string_view Of(std::int32_t id) const;

 private:
  std::string bytes_;                   // of all tokens, one after the other
  std::vector<std::uint32_t> offsets_;  // one more than tokens
};

// A vocabulary entry from the byte-level alphabet to bytes. Characters outside
// the alphabet stay as they are.
std::string DecodeByteLevel(std::string_view text);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_OUTPUT_TOKEN_BYTES_H_
