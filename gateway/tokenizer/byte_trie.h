// A set of strings, walked byte by byte.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_BYTE_TRIE_H_
#define HOLDFAST_GATEWAY_TOKENIZER_BYTE_TRIE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::gateway {

// Const members are safe from any number of threads.
class ByteTrie {
 public:
  ByteTrie();

  // An empty string is not added. A string added twice keeps its first value.
  void Add(std::string_view string, std::uint32_t value);
  bool empty() const { return longest_ == 0; }
  std::size_t longest() const { return longest_; }  // bytes

  struct Match {
    // The longest string at the place, its bytes and value.
    std::optional<std::uint32_t> value;
    std::size_t bytes = 0;
    // Bytes of the text that decided it: another text with the same ones has
    // the same match.
    std::size_t examined = 0;
    // The text ended inside a string of the set, or right at the end of one.
    bool reached_end = false;
  };
  // What of the set stands at the start of `text`.
  Match MatchAt(std::string_view text) const;
  // The first place at or after `from` whose byte begins a string of the set;
  // text.size() when there is none.
  std::size_t NextCandidate(std::string_view text, std::size_t from) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::uint32_t>> children;
    std::optional<std::uint32_t> value;
  };
  std::uint32_t Child(std::uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};
  std::size_t longest_ = 0;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_BYTE_TRIE_H_
