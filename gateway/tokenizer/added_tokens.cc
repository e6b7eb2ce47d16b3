#include "gateway/tokenizer/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "gateway/tokenizer/unicode_additions.h"
#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway {
namespace {

// \w of Rust's regex crate: Alphabetic, marks, decimal digits, connectors,
// joiners.
bool IsWord(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    case UTF8PROC_CATEGORY_CN:
      return std::any_of(
          UnicodeAdditions().begin(), UnicodeAdditions().end(),
          [code](const UnicodeAddition& addition) {
            const std::string_view category = addition.category;
            return code >= addition.range.low && code <= addition.range.high &&
                   (category[0] == 'L' || category[0] == 'M' ||
                    category == "Nd" || category == "Nl" || category == "Pc");
          });
    default:
      // Join_Control, and the symbols that are Other_Alphabetic.
      return code == 0x200C || code == 0x200D ||
             (code >= 0x24B6 && code <= 0x24E9) ||
             (code >= 0x1F130 && code <= 0x1F149) ||
             (code >= 0x1F150 && code <= 0x1F169) ||
             (code >= 0x1F170 && code <= 0x1F189);
  }
}

std::size_t SpaceBefore(std::string_view text, std::size_t end) {
  while (end > 0) {
    const Character c = LastCharacter(text.substr(0, end));
    if (!IsSpace(c.code)) break;
    end -= c.bytes;
  }
  return end;
}

std::size_t SpaceAfter(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const Character c = FirstCharacter(text.substr(begin));
    if (!IsSpace(c.code)) break;
    begin += c.bytes;
  }
  return begin;
}

}  // namespace

void AddedTokens::Add(const AddedToken& token, std::string_view written) {
  if (written.empty()) return;
  any_lstrip_ = any_lstrip_ || token.lstrip;
  trie_.Add(written, static_cast<std::uint32_t>(tokens_.size()));
  tokens_.push_back(
      {.id = token.id,
       .lstrip = token.lstrip,
       .rstrip = token.rstrip,
       .single_word = token.single_word,
       .one_character = FirstCharacter(written).bytes == written.size()});
}

bool AddedTokens::Stands(const Token& token, std::string_view text,
                         std::size_t begin, std::size_t end,
                         char32_t sentinel) const {
  if (token.single_word &&
      ((begin > 0 && IsWord(LastCharacter(text.substr(0, begin)).code)) ||
       (end < text.size() && IsWord(FirstCharacter(text.substr(end)).code)))) {
    return false;
  }
  return !(token.one_character && sentinel != 0 && end < text.size() &&
           FirstCharacter(text.substr(end)).code == sentinel);
}

std::vector<AddedTokens::Part> AddedTokens::Cut(std::string_view text,
                                                std::size_t begin,
                                                char32_t sentinel) const {
  std::vector<Part> parts;
  std::size_t cut = begin;       // where the last part ends
  std::size_t examined = begin;  // bytes that decided the parts so far
  std::size_t at = begin;
  while ((at = trie_.NextCandidate(text, at)) < text.size()) {
    const ByteTrie::Match match = trie_.MatchAt(text.substr(at));
    examined = std::max(examined, at + match.examined);
    if (!match.value) {
      ++at;
      continue;
    }
    const Token& token = tokens_[*match.value];
    std::size_t token_begin = at;
    std::size_t token_end = at + match.bytes;
    at = token_end;  // even when it does not stand
    if (token.single_word || token.one_character) {
      examined = std::max(examined, token_end + kNeighbour);
    }
    if (!Stands(token, text, token_begin, token_end, sentinel)) continue;
    if (token.lstrip) {
      token_begin = std::max(SpaceBefore(text, token_begin), cut);
    }
    if (token.rstrip) token_end = SpaceAfter(text, token_end);
    if (cut < token_begin) parts.push_back({{}, cut, token_begin, {}});
    Part part{token.id, token_begin, token_end, {}};
    if (!token.lstrip && !token.rstrip) {
      part.need = std::max(examined, token_end);
    }
    parts.push_back(part);
    cut = token_end;
  }
  if (cut < text.size()) parts.push_back({{}, cut, text.size(), {}});
  return parts;
}

}  // namespace holdfast::gateway
