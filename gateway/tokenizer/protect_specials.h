// Keeps the text of added tokens in user strings from becoming those tokens.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_PROTECT_SPECIALS_H_
#define HOLDFAST_GATEWAY_TOKENIZER_PROTECT_SPECIALS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::gateway {

// A Unicode noncharacter (U+FDD0 to U+FDEF) that is in none of the strings;
// the lowest, so that equal conversations get equal sentinels. Nothing when
// each of the 32 is in use: the caller refuses such a request.
std::optional<char32_t> PickSentinel(std::span<const std::string_view> strings);

// Made once for a tokenizer (Tokenizer::added_texts()). Immutable, for any
// number of threads.
class SpecialProtector {
 public:
  explicit SpecialProtector(std::span<const std::string> special_texts);
  ~SpecialProtector();
  SpecialProtector(const SpecialProtector&) = delete;
  SpecialProtector& operator=(const SpecialProtector&) = delete;

  // `text` with the sentinel after the first character of each occurrence of
  // a special text, overlapping ones too, and of a beginning of one at the end
  // of the text, so that protected strings may be put together in any way.
  // Encoded with this sentinel it yields no added token, and the ids of `text`
  // encoded without parse_added. The text must be valid UTF-8.
  std::string Protect(std::string_view text, char32_t sentinel) const;

 private:
  class Trie;
  std::unique_ptr<const Trie> trie_;
};

// The same in one call.
std::string ProtectSpecials(std::string_view text,
                            std::span<const std::string> special_texts,
                            char32_t sentinel);

// `text` without the sentinel: what a template's rendering shows to people.
std::string RemoveSentinel(std::string_view text, char32_t sentinel);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_PROTECT_SPECIALS_H_
