#include "gateway/tokenizer/byte_trie.h"

#include <algorithm>

namespace holdfast::gateway {

ByteTrie::ByteTrie() : nodes_(1) {}

std::uint32_t ByteTrie::Child(std::uint32_t node, unsigned char byte) const {
  for (const auto& [child_byte, child] : nodes_[node].children) {
    if (child_byte == byte) return child;
  }
  return 0;  // the root is nobody's child
}

void ByteTrie::Add(std::string_view string, std::uint32_t value) {
  if (string.empty()) return;
  begins_[static_cast<unsigned char>(string[0])] = true;
  longest_ = std::max(longest_, string.size());
  std::uint32_t node = 0;
  for (const char c : string) {
    const auto byte = static_cast<unsigned char>(c);
    std::uint32_t next = Child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes_.size());
      nodes_[node].children.emplace_back(byte, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  if (!nodes_[node].value) nodes_[node].value = value;
}

ByteTrie::Match ByteTrie::MatchAt(std::string_view text) const {
  Match match;
  std::uint32_t node = 0;
  for (std::size_t i = 0;; ++i) {
    if (i > 0 && nodes_[node].value) {
      match.value = nodes_[node].value;
      match.bytes = i;
    }
    if (nodes_[node].children.empty()) {
      match.examined = i;
      match.reached_end = i == text.size();
      return match;
    }
    if (i == text.size()) {
      match.examined = i + 1;  // that nothing follows decided it too
      match.reached_end = true;
      return match;
    }
    node = Child(node, static_cast<unsigned char>(text[i]));
    if (node == 0) {
      match.examined = i + 1;
      return match;
    }
  }
}

std::size_t ByteTrie::NextCandidate(std::string_view text,
                                    std::size_t from) const {
  while (from < text.size() &&
         !begins_[static_cast<unsigned char>(text[from])]) {
    ++from;
  }
  return from;
}

}  // namespace holdfast::gateway
