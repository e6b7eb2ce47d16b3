// Cuts added tokens out of text, as Hugging Face `tokenizers` does.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_ADDED_TOKENS_H_
#define HOLDFAST_GATEWAY_TOKENIZER_ADDED_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gateway/tokenizer/byte_trie.h"
#include "shared/tokenizer_spec.h"

namespace holdfast::gateway {

// Immutable once filled; any number of threads.
class AddedTokens {
 public:
  // `written`: the text that stands for the token.
  void Add(const AddedToken& token, std::string_view written);
  bool empty() const { return trie_.empty(); }

  struct Part {
    std::optional<std::uint32_t> id;  // nothing: text between tokens
    std::size_t begin = 0;
    std::size_t end = 0;
    // Of a token: texts that share this many bytes share every part up to
    // here. Nothing: what follows may change where it ends.
    std::optional<std::size_t> need;
  };
  // The parts of text[begin, text.size()), in order: leftmost tokens, of
  // those the longest. `sentinel`: 0 or the character that keeps a token of
  // one character before it from being one.
  std::vector<Part> Cut(std::string_view text, std::size_t begin,
                        char32_t sentinel) const;

  // No decision about a token that begins before a place looks further than
  // this many bytes past it.
  std::size_t reach() const { return trie_.longest() + kNeighbour; }
  bool any_lstrip() const { return any_lstrip_; }

 private:
  static constexpr std::size_t kNeighbour = 4;  // bytes of a character

  struct Token {
    std::uint32_t id = 0;
    bool lstrip = false;
    bool rstrip = false;
    bool single_word = false;
    bool one_character = false;
  };

  bool Stands(const Token& token, std::string_view text, std::size_t begin,
              std::size_t end, char32_t sentinel) const;

  std::vector<Token> tokens_;
  ByteTrie trie_;
  bool any_lstrip_ = false;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_ADDED_TOKENS_H_
