#include "gateway/tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "gateway/tokenizer/unicode_additions.h"
#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway {
namespace {

constexpr CharacterRange kBoundaries[] = {
    {0x0, 0x2FF},          // Latin, punctuation
    {0x391, 0x3A1},        // Greek
    {0x3A3, 0x3CE},        //
    {0x400, 0x482},        // Cyrillic
    {0x5D0, 0x5EA},        // Hebrew
    {0x621, 0x64A},        // Arabic
    {0xE01, 0xE2E},        // Thai
    {0x2010, 0x205E},      // general punctuation
    {0x2190, 0x21FF},      // arrows
    {0x2200, 0x2329 - 1},  // mathematical operators
    {0x2460, 0x2ADB},      // box drawing, symbols
    {0x3001, 0x3029},      // CJK punctuation
    {0x3041, 0x3096},      // kana
    {0x30A1, 0x30FF},      //
    {0x3400, 0x9FFF},      // CJK ideographs
    {0xAC00, 0xD7A3},      // Hangul syllables
    {0xFDD0, 0xFDEF},      // noncharacters
    {0xFF01, 0xFFEF},      // full-width forms
    {0x1F000, 0x1FAFF},    // emoji
};

// Characters that reorder or compose today and were not assigned in the
// Unicode 9 of the normalizer that `tokenizers` uses: there they stand alone.
constexpr CharacterRange kUnassigned[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},
    {0x9FE, 0x9FE},     {0xC3C, 0xC3C},     {0xD3B, 0xD3C},
    {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ADD},
    {0x1AE0, 0x1AEB},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0x105C9, 0x105C9}, {0x105E4, 0x105E4}, {0x10D24, 0x10D27},
    {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFA, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
    {0x1133B, 0x1133B}, {0x11382, 0x113E2}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x1193D, 0x1193E},
    {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42},
    {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x1611E, 0x1612F}, {0x16D63, 0x16D6A}, {0x16FF0, 0x16FF1},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF},
};

template <std::size_t n>
bool InRanges(const CharacterRange (&ranges)[n], char32_t code) {
  const auto* range = std::upper_bound(
      std::begin(ranges), std::end(ranges), code,
      [](char32_t value, const CharacterRange& r) { return value < r.low; });
  return range != std::begin(ranges) && code <= std::prev(range)->high;
}

int CombiningClass(utf8proc_int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

// Orders each run of marks by class. A stable sort, where utf8proc would take
// time quadratic in the run's length.
void Reorder(std::vector<utf8proc_int32_t>& codes) {
  for (auto begin = codes.begin(); begin != codes.end();) {
    begin = std::find_if(begin, codes.end(), CombiningClass);
    const auto end = std::find_if_not(begin, codes.end(), CombiningClass);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    begin = end;
  }
}

void Compose(std::vector<utf8proc_int32_t>& codes, std::string* out) {
  Reorder(codes);
  const utf8proc_ssize_t composed = utf8proc_normalize_utf32(
      codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  for (utf8proc_ssize_t i = 0; i < composed; ++i) {
    AppendUtf8(static_cast<char32_t>(codes[i]), out);
  }
  codes.clear();
}

}  // namespace

bool IsNfcBoundary(char32_t code) { return InRanges(kBoundaries, code); }

void AppendNfc(std::string_view text, std::string* out) {
  constexpr int kLongestDecomposition = 8;  // 4 in today's Unicode
  std::vector<utf8proc_int32_t> codes;
  while (!text.empty()) {
    const Character c = FirstCharacter(text);
    text.remove_prefix(c.bytes);
    if (InRanges(kUnassigned, c.code)) {
      Compose(codes, out);
      AppendUtf8(c.code, out);
      continue;
    }
    utf8proc_int32_t decomposed[kLongestDecomposition];
    int last_class = UTF8PROC_BOUNDCLASS_START;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(c.code), decomposed,
        kLongestDecomposition,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE),
        &last_class);
    codes.insert(codes.end(), decomposed, decomposed + count);
  }
  Compose(codes, out);
}

}  // namespace holdfast::gateway
