#include "gateway/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway {
namespace {

bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

constexpr char32_t kFirstSubstitute = 0x100;
constexpr int kSubstitutes = 68;  // bytes that do not stand for themselves

struct Alphabet {
  std::array<char32_t, 256> code_of_byte{};
  std::array<std::int16_t, kFirstSubstitute + kSubstitutes> byte_of_code{};

  Alphabet() {
    byte_of_code.fill(-1);
    char32_t next = kFirstSubstitute;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t code =
          StandsForItself(byte) ? static_cast<char32_t>(byte) : next++;
      code_of_byte[byte] = code;
      byte_of_code[code] = static_cast<std::int16_t>(byte);
    }
  }
};

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

std::string BytesOfToken(std::string_view token) {
  const Alphabet& alphabet = TheAlphabet();
  if (ValidUtf8Bytes(token) != token.size()) return std::string(token);
  std::string bytes;
  for (std::string_view rest = token; !rest.empty();) {
    const Character c = FirstCharacter(rest);
    rest.remove_prefix(c.bytes);
    if (c.code >= alphabet.byte_of_code.size() ||
        alphabet.byte_of_code[c.code] < 0) {
      return std::string(token);
    }
    bytes.push_back(static_cast<char>(alphabet.byte_of_code[c.code]));
  }
  return bytes;
}

std::string TokenOfByte(unsigned char byte) {
  std::string token;
  AppendUtf8(TheAlphabet().code_of_byte[byte], &token);
  return token;
}

}  // namespace holdfast::gateway
