// JSON checked byte by byte as it arrives.
#ifndef HOLDFAST_GATEWAY_ANSWER_JSON_SCANNER_H_
#define HOLDFAST_GATEWAY_ANSWER_JSON_SCANNER_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace holdfast::answer {

// One value, strict as RFC 8259 has it, at most 64 levels deep. Text that is
// not ASCII is taken as it is. After any other step than kMore the scanner has
// ended.
class JsonScanner {
 public:
  enum class Step {
    kMore,
    kDone,        // this byte was the value's last
    kDoneBefore,  // a number ended before this byte
    kError,
  };
  Step Push(char c);

 private:
  enum class State {
    kValue,
    kFirstItem,
    kFirstKey,
    kKey,
    kColon,
    kAfterValue,
    kString,
    kEscape,
    kHex,
    kNumber,
    kLiteral,
  };
  enum class Number {
    kMinus,
    kZero,
    kInteger,
    kDot,
    kFraction,
    kE,
    kSign,
    kExponent
  };

  Step BeginValue(char c);
  Step EndValue();
  Step Close(char c);
  Step PushInString(char c);
  Step PushNumber(char c);

  State state_ = State::kValue;
  Number number_ = Number::kMinus;
  std::string open_;  // '{' and '[' that are not closed
  bool in_key_ = false;
  int hex_left_ = 0;
  std::string_view literal_left_;
};

// `text` is one JSON value and nothing else.
bool IsJsonValue(std::string_view text);

}  // namespace holdfast::answer

#endif  // HOLDFAST_GATEWAY_ANSWER_JSON_SCANNER_H_
