// The GPT-2 byte-to-unicode alphabet, in which files write the tokens of a
// byte-level vocabulary: one printable character for each byte.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_BYTE_ALPHABET_H_
#define HOLDFAST_GATEWAY_TOKENIZER_BYTE_ALPHABET_H_

#include <string>
#include <string_view>

namespace holdfast::gateway {

// The bytes that `token` stands for. A token with a character outside the
// alphabet stands for itself, as Hugging Face's decoder has it.
std::string BytesOfToken(std::string_view token);

// The token of one byte.
std::string TokenOfByte(unsigned char byte);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_BYTE_ALPHABET_H_
