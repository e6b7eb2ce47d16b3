#include "gateway/tokenizer/protect_specials.h"

#include <cstdint>

#include "gateway/tokenizer/byte_trie.h"
#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway {
namespace {

constexpr char32_t kFirstSentinel = 0xFDD0;
constexpr int kSentinels = 32;  // to U+FDEF

// In UTF-8 the candidates are EF B7 90 to EF B7 AF.
constexpr std::string_view kSentinelLead = "\xEF\xB7";
constexpr unsigned char kFirstSentinelTail = 0x90;

}  // namespace

class SpecialProtector::Trie : public ByteTrie {};

std::optional<char32_t> PickSentinel(
    std::span<const std::string_view> strings) {
  std::uint32_t used = 0;
  for (const std::string_view text : strings) {
    for (std::size_t at = text.find(kSentinelLead); at != text.npos;
         at = text.find(kSentinelLead, at + 1)) {
      if (at + 2 >= text.size()) break;
      const int index =
          static_cast<unsigned char>(text[at + 2]) - kFirstSentinelTail;
      if (index >= 0 && index < kSentinels) used |= std::uint32_t{1} << index;
    }
  }
  for (int i = 0; i < kSentinels; ++i) {
    if ((used >> i & 1) == 0) return kFirstSentinel + i;
  }
  return std::nullopt;
}

SpecialProtector::SpecialProtector(std::span<const std::string> special_texts) {
  auto trie = std::make_unique<Trie>();
  for (const std::string& text : special_texts) trie->Add(text, 0);
  trie_ = std::move(trie);
}

SpecialProtector::~SpecialProtector() = default;

std::string SpecialProtector::Protect(std::string_view text,
                                      char32_t sentinel) const {
  std::string result;
  std::size_t copied = 0;
  for (std::size_t at = trie_->NextCandidate(text, 0); at < text.size();) {
    const ByteTrie::Match match = trie_->MatchAt(text.substr(at));
    const std::size_t next = at + FirstCharacter(text.substr(at)).bytes;
    if (match.value || match.reached_end) {
      result.append(text.substr(copied, next - copied));
      AppendUtf8(sentinel, &result);
      copied = next;
    }
    at = trie_->NextCandidate(text, next);
  }
  result.append(text.substr(copied));
  return result;
}

std::string ProtectSpecials(std::string_view text,
                            std::span<const std::string> special_texts,
                            char32_t sentinel) {
  return SpecialProtector(special_texts).Protect(text, sentinel);
}

std::string RemoveSentinel(std::string_view text, char32_t sentinel) {
  std::string encoded;
  AppendUtf8(sentinel, &encoded);
  std::string result;
  std::size_t begin = 0;
  for (std::size_t at = text.find(encoded); at != text.npos;
       at = text.find(encoded, begin)) {
    result.append(text.substr(begin, at - begin));
    begin = at + encoded.size();
  }
  result.append(text.substr(begin));
  return result;
}

}  // namespace holdfast::gateway
