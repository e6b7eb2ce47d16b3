#include "gateway/answer/json_scanner.h"

namespace holdfast::answer {
namespace {

constexpr std::size_t kMaxDepth = 64;

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsHex(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

JsonScanner::Step JsonScanner::Push(char c) {
  switch (state_) {
    case State::kString:
    case State::kEscape:
    case State::kHex:
      return PushInString(c);
    case State::kNumber:
      return PushNumber(c);
    case State::kLiteral:
      if (c != literal_left_.front()) return Step::kError;
      literal_left_.remove_prefix(1);
      return literal_left_.empty() ? EndValue() : Step::kMore;
    default:
      break;
  }
  if (IsSpace(c)) return Step::kMore;
  switch (state_) {
    case State::kValue:
      return BeginValue(c);
    case State::kFirstItem:
      return c == ']' ? Close(c) : BeginValue(c);
    case State::kFirstKey:
      if (c == '}') return Close(c);
      [[fallthrough]];
    case State::kKey:
      if (c != '"') return Step::kError;
      in_key_ = true;
      state_ = State::kString;
      return Step::kMore;
    case State::kColon:
      if (c != ':') return Step::kError;
      state_ = State::kValue;
      return Step::kMore;
    default:  // kAfterValue
      if (c != ',') return Close(c);
      state_ = open_.back() == '{' ? State::kKey : State::kValue;
      return Step::kMore;
  }
}

JsonScanner::Step JsonScanner::BeginValue(char c) {
  switch (c) {
    case '{':
    case '[':
      if (open_.size() >= kMaxDepth) return Step::kError;
      open_.push_back(c);
      state_ = c == '{' ? State::kFirstKey : State::kFirstItem;
      return Step::kMore;
    case '"':
      in_key_ = false;
      state_ = State::kString;
      return Step::kMore;
    case 't':
      literal_left_ = "rue";
      break;
    case 'f':
      literal_left_ = "alse";
      break;
    case 'n':
      literal_left_ = "ull";
      break;
    default:
      if (c != '-' && !IsDigit(c)) return Step::kError;
      state_ = State::kNumber;
      number_ = c == '-'   ? Number::kMinus
                : c == '0' ? Number::kZero
                           : Number::kInteger;
      return Step::kMore;
  }
  state_ = State::kLiteral;
  return Step::kMore;
}

JsonScanner::Step JsonScanner::EndValue() {
  if (open_.empty()) return Step::kDone;
  state_ = State::kAfterValue;
  return Step::kMore;
}

JsonScanner::Step JsonScanner::Close(char c) {
  if (c != (open_.back() == '{' ? '}' : ']')) return Step::kError;
  open_.pop_back();
  return EndValue();
}

JsonScanner::Step JsonScanner::PushInString(char c) {
  if (state_ == State::kHex) {
    if (!IsHex(c)) return Step::kError;
    if (--hex_left_ == 0) state_ = State::kString;
    return Step::kMore;
  }
  if (state_ == State::kEscape) {
    if (c == 'u') {
      state_ = State::kHex;
      hex_left_ = 4;
      return Step::kMore;
    }
    state_ = State::kString;
    return std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos
               ? Step::kError
               : Step::kMore;
  }
  if (static_cast<unsigned char>(c) < 0x20) return Step::kError;
  if (c == '\\') state_ = State::kEscape;
  if (c != '"') return Step::kMore;
  if (!in_key_) return EndValue();
  state_ = State::kColon;
  return Step::kMore;
}

JsonScanner::Step JsonScanner::PushNumber(char c) {
  const auto go = [this](Number next) {
    number_ = next;
    return Step::kMore;
  };
  const bool digit = IsDigit(c);
  const bool e = c == 'e' || c == 'E';
  switch (number_) {
    case Number::kMinus:
      if (!digit) return Step::kError;
      return go(c == '0' ? Number::kZero : Number::kInteger);
    case Number::kZero:
    case Number::kInteger:
      if (digit && number_ == Number::kInteger) return Step::kMore;
      if (c == '.') return go(Number::kDot);
      if (e) return go(Number::kE);
      break;
    case Number::kDot:
      if (!digit) return Step::kError;
      return go(Number::kFraction);
    case Number::kFraction:
      if (digit) return Step::kMore;
      if (e) return go(Number::kE);
      break;
    case Number::kE:
      if (c == '+' || c == '-') return go(Number::kSign);
      [[fallthrough]];
    case Number::kSign:
      if (!digit) return Step::kError;
      return go(Number::kExponent);
    case Number::kExponent:
      if (digit) return Step::kMore;
      break;
  }
  if (open_.empty()) return Step::kDoneBefore;
  state_ = State::kAfterValue;
  return Push(c);
}

bool IsJsonValue(std::string_view text) {
  JsonScanner scanner;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const JsonScanner::Step step = scanner.Push(text[i]);
    if (step == JsonScanner::Step::kMore) continue;
    return step == JsonScanner::Step::kDone && i + 1 == text.size();
  }
  // A number has no last byte of its own.
  return scanner.Push(' ') == JsonScanner::Step::kDoneBefore;
}

}  // namespace holdfast::answer
