// <function=f><parameter=p>text</parameter>...</function>. The arguments become
// a JSON object; a parameter that is a string is passed on while it comes.
#include <algorithm>

#include "gateway/answer/call_reader.h"

namespace holdfast::answer {
namespace {

constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";
constexpr std::size_t kMaxNameBytes = 256;

// What follows a parameter. The models forget </function> at times.
constexpr std::string_view kNext[] = {kParameter, kFunctionEnd, kToolCallEnd};

Match StartsWithNext(std::string_view text) {
  Match best = Match::kNo;
  for (const std::string_view tag : kNext) {
    best = std::max(best, StartsWith(text, tag));
  }
  return best;
}

class XmlCallReader final : public CallReader {
 public:
  XmlCallReader(std::size_t body, const Tools& tools)
      : body_(body), tools_(tools) {}

  Result Read(bool final, std::string* text,
              std::vector<Piece>* pieces) override {
    final_ = final;
    text_ = text;
    pieces_ = pieces;
    Status status = Status::kGoOn;
    while (status == Status::kGoOn) status = Step();
    if (status == Status::kDone) return Result::kDone;
    if (status == Status::kMore && !final) return Result::kMore;
    return Result::kBroken;
  }

 private:
  enum class State { kFunction, kNext, kValueStart, kValue };
  enum class Status { kGoOn, kMore, kDone, kBroken };

  Status Step() {
    switch (state_) {
      case State::kFunction:
        return ReadFunction();
      case State::kNext:
        return ReadNext();
      case State::kValueStart:
        return ReadValueStart();
      case State::kValue:
        return ReadValue();
    }
    return Status::kBroken;
  }

  // "<tag" NAME ">" at `at`: the name, and where it ends.
  Status ReadName(std::size_t at, std::string_view tag, std::string* name,
                  std::size_t* end) {
    const std::string_view text = *text_;
    const Match match = StartsWith(text.substr(at), tag);
    if (match == Match::kNo) return Status::kBroken;
    if (match == Match::kMaybe) return Status::kMore;
    at += tag.size();
    const std::size_t stop = text.find_first_of("<>\n", at);
    const std::size_t length = std::min(stop, text.size()) - at;
    if (length > kMaxNameBytes) return Status::kBroken;
    if (stop == std::string_view::npos) return Status::kMore;
    if (text[stop] != '>' || length == 0) return Status::kBroken;
    *name = text.substr(at, length);
    *end = stop + 1;
    return Status::kGoOn;
  }

  Status ReadFunction() {
    std::size_t end = 0;
    const Status status =
        ReadName(SkipSpace(*text_, body_), kFunction, &function_, &end);
    if (status != Status::kGoOn) return status;
    announced_ = true;
    Take(PieceKind::kCall, function_, end, text_, pieces_);
    state_ = State::kNext;
    return Status::kGoOn;
  }

  Status ReadNext() {
    const std::size_t at = SkipSpace(*text_, 0);
    const std::string_view rest = std::string_view(*text_).substr(at);
    const Match match = StartsWithNext(rest);
    if (match == Match::kNo) return Status::kBroken;
    if (match == Match::kMaybe) return Status::kMore;
    if (rest.starts_with(kParameter)) return ReadParameter(at);
    const std::size_t end =
        rest.starts_with(kFunctionEnd) ? at + kFunctionEnd.size() : at;
    Take(PieceKind::kArguments, first_ ? "{}" : "}", end, text_, pieces_);
    return Status::kDone;
  }

  Status ReadParameter(std::size_t at) {
    std::string name;
    std::size_t end = 0;
    const Status status = ReadName(at, kParameter, &name, &end);
    if (status != Status::kGoOn) return status;
    types_ = tools_.TypesOf(function_, name);
    std::string json = first_ ? "{" : ", ";
    json += "\"" + EscapeJson(name) + "\": ";
    if (types_ == kString) json += '"';
    Take(PieceKind::kArguments, json, end, text_, pieces_);
    first_ = false;
    state_ = State::kValueStart;
    return Status::kGoOn;
  }

  // The line break behind the tag.
  Status ReadValueStart() {
    if (text_->empty()) return Status::kMore;
    if (text_->front() == '\n') {
      Take(PieceKind::kArguments, "", 1, text_, pieces_);
    }
    state_ = State::kValue;
    searched_ = 0;
    return Status::kGoOn;
  }

  // The tag that ends a value is one that a next tag follows: the text of a
  // file may hold others.
  Status ReadValue() {
    const std::size_t end = text_->find(kParameterEnd, searched_);
    if (end == std::string::npos) return ReadPartOfValue(text_->size());
    const std::size_t behind = end + kParameterEnd.size();
    const std::size_t next = SkipSpace(*text_, behind);
    const Match match = StartsWithNext(std::string_view(*text_).substr(next));
    if (match == Match::kNo) {
      searched_ = end + 1;
      return Status::kGoOn;
    }
    if (match == Match::kMaybe && !final_) return ReadPartOfValue(end);
    const std::size_t length =
        end > 0 && (*text_)[end - 1] == '\n' ? end - 1 : end;
    const std::string_view value = std::string_view(*text_).substr(0, length);
    Take(PieceKind::kArguments,
         types_ == kString ? EscapeJson(value) + "\"" : ToJson(value, types_),
         behind, text_, pieces_);
    state_ = State::kNext;
    return Status::kGoOn;
  }

  // The value has not ended before `limit`, where its end may begin.
  Status ReadPartOfValue(std::size_t limit) {
    if (final_) {  // the answer was cut: what there is of it
      const std::string_view rest = *text_;
      Take(PieceKind::kArguments,
           types_ == kString ? EscapeJson(rest) : std::string(rest),
           text_->size(), text_, pieces_);
      return Status::kMore;
    }
    std::size_t certain = limit;
    if (limit == text_->size()) certain -= PartialTag(*text_, kParameterEnd);
    if (certain > 0 && (*text_)[certain - 1] == '\n') --certain;
    if (types_ != kString) {
      searched_ = certain;
      return Status::kMore;
    }
    Take(PieceKind::kArguments,
         EscapeJson(std::string_view(*text_).substr(0, certain)), certain,
         text_, pieces_);
    searched_ = 0;
    return Status::kMore;
  }

  const std::size_t body_;
  const Tools& tools_;
  bool final_ = false;  // of this call of Read
  std::string* text_ = nullptr;
  std::vector<Piece>* pieces_ = nullptr;
  State state_ = State::kFunction;
  std::string function_;
  bool first_ = true;         // no parameter yet
  Types types_ = kString;     // of the parameter being read
  std::size_t searched_ = 0;  // no end of its value begins before
};

}  // namespace

std::unique_ptr<CallReader> MakeXmlCallReader(std::size_t body,
                                              const Tools& tools) {
  return std::make_unique<XmlCallReader>(body, tools);
}

std::unique_ptr<CallReader> MakeCallReader(CallSyntax syntax, std::size_t body,
                                           const Tools& tools) {
  return syntax == CallSyntax::kQwenXml ? MakeXmlCallReader(body, tools)
                                        : MakeJsonCallReader(body);
}

}  // namespace holdfast::answer
