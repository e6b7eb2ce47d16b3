// UTF-8 as Unicode defines it: no surrogates, no overlong forms, at most
// U+10FFFF. Pure functions.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_UTF8_H_
#define HOLDFAST_GATEWAY_TOKENIZER_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace holdfast::gateway {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

enum class Utf8Kind {
  kCharacter,   // a whole character
  kInvalid,     // bytes that begin no character, whatever follows
  kIncomplete,  // the text ends inside what may become a character
};

// What stands at the start of `text` (not empty). `bytes` of kInvalid is the
// longest beginning of a character there, at least 1: one U+FFFD stands for
// it. `bytes` of kIncomplete is all that is left.
struct Utf8Item {
  Utf8Kind kind = Utf8Kind::kInvalid;
  std::size_t bytes = 1;
};
Utf8Item ReadUtf8(std::string_view text);

// How many bytes at the start are valid; text.size() when all are.
std::size_t ValidUtf8Bytes(std::string_view text);

// The character at the start of a valid text that is not empty.
struct Character {
  char32_t code = 0;
  std::size_t bytes = 1;
};
Character FirstCharacter(std::string_view valid);
Character LastCharacter(std::string_view valid);

void AppendUtf8(char32_t code, std::string* text);

// Appends `bytes` with U+FFFD for what is invalid and returns how many bytes
// were left out at the end because they may still become a character; with
// `final` they are invalid too.
std::size_t AppendValid(std::string_view bytes, bool final, std::string* text);

// Unicode White_Space.
bool IsSpace(char32_t code);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_UTF8_H_
