// {"name": "f", "arguments": {...}}, in either order. The arguments are passed
// on as the model writes them.
#include <optional>

#include "gateway/answer/call_reader.h"
#include "gateway/answer/json_scanner.h"

namespace holdfast::answer {
namespace {

using Step = JsonScanner::Step;

// A call that does not give its name within this much is no call.
constexpr std::size_t kMaxHeadBytes = std::size_t{1} << 20;

class JsonCallReader final : public CallReader {
 public:
  explicit JsonCallReader(std::size_t body) : at_(body) {}

  Result Read(bool final, std::string* text,
              std::vector<Piece>* pieces) override {
    text_ = text;
    pieces_ = pieces;
    Result result = Result::kMore;
    while (result == Result::kMore && at_ < text->size()) {
      result = Advance((*text)[at_]);
    }
    if (!announced_) {
      const bool too_long = text->size() > kMaxHeadBytes;
      return final || too_long ? Result::kBroken : result;
    }
    FlushWholeItems();
    return final && result == Result::kMore ? Result::kBroken : result;
  }

 private:
  enum class State { kOpen, kFirstKey, kKey, kColon, kValue, kAfterValue };
  enum class Field { kName, kArguments, kOther };

  // What was read since the last piece.
  void Flush() {
    const bool arguments = streaming_;
    Take(arguments ? PieceKind::kArguments : PieceKind::kMarkup,
         arguments ? std::string_view(*text_).substr(0, at_) : "", at_, text_,
         pieces_);
    at_ = 0;
  }

  // A key or a value other than the arguments is kept until it has ended.
  void FlushWholeItems() {
    if (streaming_ || !item_begin_.has_value()) return Flush();
    const std::size_t kept = at_ - *item_begin_;
    at_ = *item_begin_;
    Flush();
    at_ = kept;
    item_begin_ = 0;
  }

  // Takes text[at_], or leaves it and changes the state.
  Result Advance(char c) {
    if (item_begin_.has_value()) return AdvanceItem(c);
    if (IsSpace(c)) return Next(state_);
    switch (state_) {
      case State::kOpen:
        return c == '{' ? Next(State::kFirstKey) : Result::kBroken;
      case State::kFirstKey:
      case State::kKey:
        if (c == '"') return BeginItem();
        return c == '}' && state_ == State::kFirstKey ? End() : Result::kBroken;
      case State::kColon:
        return c == ':' ? Next(State::kValue) : Result::kBroken;
      case State::kValue:
        return BeginValue(c);
      case State::kAfterValue:
        if (c == ',') return Next(State::kKey);
        return c == '}' ? End() : Result::kBroken;
    }
    return Result::kBroken;
  }

  Result Next(State state) {
    state_ = state;
    ++at_;
    return Result::kMore;
  }

  Result BeginItem() {
    item_begin_ = at_;
    scanner_ = JsonScanner();
    return Result::kMore;  // the scanner gets this byte next
  }

  Result BeginValue(char c) {
    if (field_ == Field::kArguments) {
      if (c != '{' || has_arguments_) return Result::kBroken;
      has_arguments_ = true;
      if (!name_.empty()) {
        Announce(at_);
        streaming_ = true;
      } else {
        arguments_begin_ = at_;
      }
    }
    return BeginItem();
  }

  Result AdvanceItem(char c) {
    const Step step = scanner_.Push(c);
    if (step == Step::kError) return Result::kBroken;
    if (step != Step::kDoneBefore) ++at_;
    return step == Step::kMore ? Result::kMore : EndItem();
  }

  Result EndItem() {
    const std::size_t begin = *item_begin_;
    item_begin_.reset();
    if (state_ != State::kValue) {  // a key
      const std::string key = DecodedString(begin);
      field_ = key == "name"        ? Field::kName
               : key == "arguments" ? Field::kArguments
                                    : Field::kOther;
      state_ = State::kColon;
      return Result::kMore;
    }
    state_ = State::kAfterValue;
    if (streaming_) {
      Flush();
      streaming_ = false;
    } else if (field_ == Field::kArguments) {
      arguments_end_ = at_;
    } else if (field_ == Field::kName) {
      return TakeName(begin);
    }
    return Result::kMore;
  }

  Result TakeName(std::size_t begin) {
    if (!name_.empty() || (*text_)[begin] != '"') return Result::kBroken;
    name_ = DecodedString(begin);
    if (name_.empty()) return Result::kBroken;
    if (!has_arguments_) return Result::kMore;
    // They came before the name.
    Announce(arguments_begin_);
    streaming_ = true;
    const std::size_t rest = at_ - (arguments_end_ - arguments_begin_);
    at_ = arguments_end_ - arguments_begin_;
    Flush();
    streaming_ = false;
    at_ = rest;
    return Result::kMore;
  }

  // The closing brace.
  Result End() {
    if (name_.empty()) return Result::kBroken;
    ++at_;
    if (!announced_) Announce(at_);
    if (!has_arguments_) Append(PieceKind::kArguments, "{}", "", pieces_);
    Flush();
    return Result::kDone;
  }

  // Everything up to `bytes` is the call's head.
  void Announce(std::size_t bytes) {
    announced_ = true;
    Take(PieceKind::kCall, name_, bytes, text_, pieces_);
    at_ -= bytes;
  }

  // Of a whole JSON string from `begin` to at_.
  std::string DecodedString(std::size_t begin) const {
    const Json json =
        Json::parse(text_->begin() + static_cast<std::ptrdiff_t>(begin),
                    text_->begin() + static_cast<std::ptrdiff_t>(at_), nullptr,
                    /*allow_exceptions=*/false);
    return json.is_string() ? json.get<std::string>() : std::string();
  }

  std::string* text_ = nullptr;  // of this call of Read
  std::vector<Piece>* pieces_ = nullptr;
  std::size_t at_;  // the next byte to look at
  State state_ = State::kOpen;
  Field field_ = Field::kOther;
  JsonScanner scanner_;                    // of the item being read
  std::optional<std::size_t> item_begin_;  // of a key or a value
  std::string name_;
  bool has_arguments_ = false;
  bool streaming_ = false;  // inside the arguments of an announced call
  std::size_t arguments_begin_ = 0;
  std::size_t arguments_end_ = 0;
};

}  // namespace

std::unique_ptr<CallReader> MakeJsonCallReader(std::size_t body) {
  return std::make_unique<JsonCallReader>(body);
}

}  // namespace holdfast::answer
