// Characters that Hugging Face `tokenizers` classifies and the Unicode 14 of
// older PCRE2 does not know yet. A library that does know them loses nothing:
// the ranges are only ever added to a class.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_UNICODE_ADDITIONS_H_
#define HOLDFAST_GATEWAY_TOKENIZER_UNICODE_ADDITIONS_H_

#include <span>
#include <string_view>

namespace holdfast::gateway {

struct CharacterRange {
  char32_t low;
  char32_t high;  // included
};

struct UnicodeAddition {
  CharacterRange range;
  std::string_view category;  // general category, two letters
};

// By category.
std::span<const UnicodeAddition> UnicodeAdditions();
std::span<const CharacterRange> HanAdditions();
// Of the Digits pre-tokenizer, which has a table of its own: ascending.
std::span<const CharacterRange> NumericAdditions();

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_UNICODE_ADDITIONS_H_
