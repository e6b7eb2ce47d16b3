#include "engine/output/token_bytes.h"

#include <array>

namespace holdfast::engine {
namespace {

constexpr int kAlphabetEnd = 0x144;  // highest character of the alphabet + 1

bool Printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

// Character -> byte, -1 for characters outside the alphabet: printable bytes
// stand for themselves, the others for the characters from U+0100 on.
constexpr int kOutside = -1;
std::array<int, kAlphabetEnd> MakeAlphabet() {
  std::array<int, kAlphabetEnd> alphabet;
  alphabet.fill(kOutside);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    alphabet[Printable(byte) ? byte : next++] = byte;
  }
  return alphabet;
}

}  // namespace

std::string DecodeByteLevel(std::string_view text) {
  static const auto alphabet = MakeAlphabet();
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    // The whole alphabet is one or two bytes of UTF-8.
    const auto lead = static_cast<unsigned char>(text[i]);
    int character = lead;
    std::size_t size = 1;
    if ((lead & 0xE0) == 0xC0 && i + 1 < text.size()) {
      character =
          (lead & 0x1F) << 6 | (static_cast<unsigned char>(text[i + 1]) & 0x3F);
      size = 2;
    }
    const bool known = (size == 2 || lead < 0x80) && character < kAlphabetEnd &&
                       alphabet[character] != kOutside;
    if (known) {
      bytes.push_back(static_cast<char>(alphabet[character]));
    } else {
      bytes.append(text.substr(i, size));
    }
    i += size - 1;
  }
  return bytes;
}

TokenBytes::TokenBytes(const TokenizerSpec& spec) {
  std::vector<const AddedToken*> added(spec.tokens.size(), nullptr);
  for (const AddedToken& token : spec.added_tokens) {
    if (token.id < added.size()) added[token.id] = &token;
  }
  offsets_.reserve(spec.tokens.size() + 1);
  offsets_.push_back(0);
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (added[id] == nullptr) {
      bytes_ += DecodeByteLevel(spec.tokens[id]);
    } else if (!added[id]->special) {
      bytes_ += added[id]->content;
    }
    offsets_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }
}

std::string_view TokenBytes::Of(std::int32_t id) const {
  const auto i = static_cast<std::size_t>(id);
  if (i >= offsets_.size() - 1) return {};
  return std::string_view(bytes_).substr(offsets_[i],
                                         offsets_[i + 1] - offsets_[i]);
}

}  // namespace holdfast::engine
