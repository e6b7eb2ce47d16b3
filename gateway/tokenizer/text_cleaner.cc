#include "gateway/tokenizer/text_cleaner.h"

#include <algorithm>

#include "gateway/tokenizer/nfc.h"
#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway {

std::size_t CleanText::PlainBytes(std::string_view raw, std::size_t at,
                                  bool nfc, char32_t sentinel) {
  const std::size_t begin = at;
  std::size_t last = at;  // where the last plain character begins
  while (at < raw.size()) {
    if (static_cast<unsigned char>(raw[at]) < 0x80) {
      last = at++;
      continue;
    }
    const Character c = FirstCharacter(raw.substr(at));
    if (c.code == sentinel || (nfc && !IsNfcBoundary(c.code))) break;
    last = at;
    at += c.bytes;
  }
  // What stops the run, or follows the sentinel that does, may compose with
  // its last character.
  return (nfc && at < raw.size() ? last : at) - begin;
}

CleanText::CleanText(std::string_view raw, bool nfc, char32_t sentinel) {
  std::size_t at = PlainBytes(raw, 0, nfc, sentinel);
  runs_.push_back({0, 0, at});
  if (at == raw.size()) {
    text_ = raw;
    return;
  }
  made_ = raw.substr(0, at);
  std::string segment;  // from a place to cut to the next, without sentinels
  while (at < raw.size()) {
    segment.clear();
    do {
      const Character c = FirstCharacter(raw.substr(at));
      if (c.code == sentinel) {
        at += c.bytes;
        continue;
      }
      if (!segment.empty() && (!nfc || IsNfcBoundary(c.code))) break;
      segment += raw.substr(at, c.bytes);
      at += c.bytes;
    } while (at < raw.size());
    if (nfc) {
      AppendNfc(segment, &made_);
    } else {
      made_ += segment;
    }
    const std::size_t plain = PlainBytes(raw, at, nfc, sentinel);
    if (plain == 0) continue;
    runs_.push_back({made_.size(), at, plain});
    made_ += raw.substr(at, plain);
    at += plain;
  }
  text_ = made_;
}

std::optional<std::size_t> CleanText::RawPlace(std::size_t clean) const {
  const auto after = std::upper_bound(
      runs_.begin(), runs_.end(), clean,
      [](std::size_t value, const Run& run) { return value < run.clean; });
  if (after == runs_.begin()) return std::nullopt;
  const Run& run = *std::prev(after);
  if (clean >= run.clean + run.bytes) return std::nullopt;
  return run.raw + (clean - run.clean);
}

}  // namespace holdfast::gateway
