// A tokenizer for tests: one token a byte (its value is its id), "\n\n" merged
// (256), then the given added tokens from 257 on.
#ifndef HOLDFAST_GATEWAY_TEMPLATE_TESTING_BYTE_TOKENIZER_H_
#define HOLDFAST_GATEWAY_TEMPLATE_TESTING_BYTE_TOKENIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "shared/tokenizer_spec.h"

namespace holdfast::templates::testing {

// The character that stands for a byte in GPT-2's alphabet, as UTF-8.
inline std::string ByteCharacter(int byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) ||
           (b >= 174 && b <= 255);
  };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

// The first added token named in `eos` ends a turn.
inline TokenizerSpec ByteTokenizerSpec(const std::vector<std::string>& added,
                                       const std::string& eos) {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(ByteCharacter(byte));
  }
  spec.tokens.push_back(ByteCharacter('\n') + ByteCharacter('\n'));
  spec.merges = {'\n', '\n', 256};
  PreTokenizerStep split;
  split.pattern = "\\s+|[^\\s]+";
  spec.pre_tokenizer = {split};
  for (const std::string& content : added) {
    AddedToken token;
    token.id = static_cast<std::uint32_t>(spec.tokens.size());
    token.content = content;
    token.special = content.front() == '<' && content.find('|') != content.npos;
    spec.tokens.push_back(content);
    spec.added_tokens.push_back(token);
    if (content == eos) spec.eos_ids.push_back(token.id);
  }
  spec.eos_token = eos;
  spec.source = "test";
  return spec;
}

}  // namespace holdfast::templates::testing

#endif  // HOLDFAST_GATEWAY_TEMPLATE_TESTING_BYTE_TOKENIZER_H_
