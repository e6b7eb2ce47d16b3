// What happens to text between added tokens before it is cut into pieces.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_TEXT_CLEANER_H_
#define HOLDFAST_GATEWAY_TOKENIZER_TEXT_CLEANER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::gateway {

// Text without sentinels and, where asked, in NFC; with the way back to the
// places of the original.
class CleanText {
 public:
  // `raw` must be valid UTF-8 and outlive this. `sentinel`: 0 or the
  // character to remove.
  CleanText(std::string_view raw, bool nfc, char32_t sentinel);
  CleanText(const CleanText&) = delete;
  CleanText& operator=(const CleanText&) = delete;

  std::string_view text() const { return text_; }

  // The place in the original of `clean`, a place before a character of
  // text(), where the original may be cut: both parts become what they are
  // in the whole. Nothing where it may not, or that is not certain.
  std::optional<std::size_t> RawPlace(std::size_t clean) const;

 private:
  // Characters copied as they are, each of them a place to cut before.
  struct Run {
    std::size_t clean = 0;
    std::size_t raw = 0;
    std::size_t bytes = 0;
  };

  // Bytes from `at` on that are copied as they are.
  static std::size_t PlainBytes(std::string_view raw, std::size_t at, bool nfc,
                                char32_t sentinel);

  std::string_view text_;
  std::string made_;  // text() where it differs from the original
  std::vector<Run> runs_;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_TEXT_CLEANER_H_
