#include "gateway/tokenizer/utf8.h"

#include <cstdint>
#include <cstring>

namespace holdfast::gateway {
namespace {

bool IsAscii8(const char* p) {
  std::uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return (word & 0x8080808080808080u) == 0;
}

// Bytes of the character that `lead` begins, and the range of its second
// byte, which is what keeps out overlong forms, surrogates and codes past
// U+10FFFF. 0 bytes: begins none.
struct Lead {
  std::size_t bytes = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
};

Lead ReadLead(unsigned char lead) {
  if (lead < 0x80) return {1};
  if (lead < 0xC2) return {};
  if (lead < 0xE0) return {2};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

}  // namespace

Utf8Item ReadUtf8(std::string_view text) {
  const Lead lead = ReadLead(static_cast<unsigned char>(text[0]));
  if (lead.bytes == 0) return {Utf8Kind::kInvalid, 1};
  for (std::size_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, i};
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Kind::kInvalid, i};
  }
  return {Utf8Kind::kCharacter, lead.bytes};
}

std::size_t ValidUtf8Bytes(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    if (i + 8 <= text.size() && IsAscii8(text.data() + i)) {
      i += 8;
      continue;
    }
    const Utf8Item item = ReadUtf8(text.substr(i));
    if (item.kind != Utf8Kind::kCharacter) return i;
    i += item.bytes;
  }
  return i;
}

Character FirstCharacter(std::string_view valid) {
  const auto at = [valid](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(valid[i]));
  };
  const char32_t lead = at(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {((lead & 0x1F) << 6) | (at(1) & 0x3F), 2};
  if (lead < 0xF0) {
    return {((lead & 0x0F) << 12) | ((at(1) & 0x3F) << 6) | (at(2) & 0x3F), 3};
  }
  return {((lead & 0x07) << 18) | ((at(1) & 0x3F) << 12) |
              ((at(2) & 0x3F) << 6) | (at(3) & 0x3F),
          4};
}

Character LastCharacter(std::string_view valid) {
  std::size_t begin = valid.size() - 1;
  while ((static_cast<unsigned char>(valid[begin]) & 0xC0) == 0x80) --begin;
  return FirstCharacter(valid.substr(begin));
}

void AppendUtf8(char32_t code, std::string* text) {
  const auto add = [text](char32_t byte) {
    text->push_back(static_cast<char>(static_cast<unsigned char>(byte)));
  };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | (code >> 6));
    add(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    add(0xE0 | (code >> 12));
    add(0x80 | ((code >> 6) & 0x3F));
    add(0x80 | (code & 0x3F));
  } else {
    add(0xF0 | (code >> 18));
    add(0x80 | ((code >> 12) & 0x3F));
    add(0x80 | ((code >> 6) & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

std::size_t AppendValid(std::string_view bytes, bool final, std::string* text) {
  while (!bytes.empty()) {
    const std::size_t valid = ValidUtf8Bytes(bytes);
    text->append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    const Utf8Item item = ReadUtf8(bytes);
    if (item.kind == Utf8Kind::kIncomplete && !final) return bytes.size();
    AppendUtf8(kReplacementCharacter, text);
    bytes.remove_prefix(item.bytes);
  }
  return 0;
}

bool IsSpace(char32_t code) {
  return (code >= 0x9 && code <= 0xD) || code == 0x20 || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

}  // namespace holdfast::gateway
