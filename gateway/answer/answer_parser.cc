#include "gateway/answer/answer_parser.h"

#include <algorithm>
#include <utility>

namespace holdfast::answer {
namespace {

// How much of the end of `text` is the white space that stands before a tag.
std::size_t SpaceBeforeTag(std::string_view text, std::string_view space) {
  std::size_t length = std::min(text.size(), space.size());
  while (!text.ends_with(space.substr(space.size() - length))) --length;
  return length;
}

// How much of the end of `text` may be such white space and the beginning of
// the tag.
std::size_t HeldBack(std::string_view text, std::string_view space,
                     std::string_view tag) {
  std::size_t length = PartialTag(text, tag);
  const std::size_t most = std::min(text.size(), length + space.size());
  while (length < most && IsSpace(text[text.size() - length - 1])) ++length;
  return length;
}

}  // namespace

AnswerParser::AnswerParser(const AnswerFormat& format, bool in_reasoning,
                           std::shared_ptr<const Tools> tools)
    : format_(format),
      tools_(format.calls == CallSyntax::kNone ? nullptr : std::move(tools)),
      state_(in_reasoning       ? State::kReasoning
             : format.reasoning ? State::kStart
                                : State::kContent) {}

std::vector<Piece> AnswerParser::Push(std::string_view text) {
  held_ += text;
  return Run(/*final=*/false);
}

std::vector<Piece> AnswerParser::Finish() { return Run(/*final=*/true); }

bool AnswerParser::ReadsTag(std::string_view tag) const {
  if (tag == kThink || tag == kThinkEnd) return format_.reasoning;
  return tools_ != nullptr && (tag == kToolCall || tag == kToolCallEnd);
}

std::vector<Piece> AnswerParser::Run(bool final) {
  while (!held_.empty() && Step(final)) continue;
  return std::exchange(pieces_, {});
}

bool AnswerParser::Step(bool final) {
  switch (state_) {
    case State::kStart:
      return StepStart(final);
    case State::kReasoningStart:
      return StepSpace(format_.after_think, State::kReasoning);
    case State::kReasoning:
      return StepReasoning(final);
    case State::kReasoningEnd:
      return StepSpace(format_.after_think_end, State::kContent);
    case State::kContent:
      return StepContent(final);
    case State::kCall:
      return StepCall(final);
    case State::kCallEnd:
      return StepCallEnd(final);
  }
  return false;
}

void AnswerParser::Take(PieceKind kind, std::size_t bytes) {
  const std::string_view raw = std::string_view(held_).substr(0, bytes);
  Append(kind, kind == PieceKind::kMarkup ? "" : raw, raw, &pieces_);
  held_.erase(0, bytes);
}

bool AnswerParser::StepStart(bool final) {
  const std::size_t at = SkipSpace(held_, 0);
  const Match match = StartsWith(std::string_view(held_).substr(at), kThink);
  if (match == Match::kMaybe && !final) return false;
  if (match != Match::kYes) {
    state_ = State::kContent;
    return true;
  }
  Take(PieceKind::kMarkup, at + kThink.size());
  state_ = State::kReasoningStart;
  space_read_ = 0;
  return true;
}

bool AnswerParser::StepSpace(std::string_view space, State next) {
  std::size_t bytes = 0;
  while (bytes < held_.size() && space_read_ < space.size() &&
         held_[bytes] == space[space_read_]) {
    ++bytes;
    ++space_read_;
  }
  if (bytes < held_.size() || space_read_ == space.size()) state_ = next;
  Take(PieceKind::kMarkup, bytes);
  return true;
}

bool AnswerParser::StepReasoning(bool final) {
  const std::string_view text = held_;
  const std::size_t end = text.find(kThinkEnd);
  if (end == std::string_view::npos) {
    const std::size_t kept =
        final ? 0 : HeldBack(text, format_.before_think_end, kThinkEnd);
    if (kept == text.size()) return false;
    Take(PieceKind::kReasoning, text.size() - kept);
    return true;
  }
  const std::size_t space =
      SpaceBeforeTag(text.substr(0, end), format_.before_think_end);
  Take(PieceKind::kReasoning, end - space);
  Take(PieceKind::kMarkup, space + kThinkEnd.size());
  state_ = State::kReasoningEnd;
  space_read_ = 0;
  return true;
}

bool AnswerParser::StepContent(bool final) {
  const std::string_view text = held_;
  if (tools_ == nullptr) {
    Take(PieceKind::kContent, text.size());
    return true;
  }
  const std::size_t tag = text.find(kToolCall);
  if (tag != std::string_view::npos) {
    BeginCall(tag);
    return true;
  }
  const bool all_blank = blank_ && SkipSpace(text, 0) == text.size();
  if (final) {
    // White space behind the last call belongs to it.
    Take(all_blank && called_ ? PieceKind::kMarkup : PieceKind::kContent,
         text.size());
    return true;
  }
  const std::size_t kept = HeldBack(text, format_.before_call, kToolCall);
  const std::size_t sent = text.size() - kept;
  if (sent == 0) return false;
  // White space at the content's start may all stand before a call.
  if (blank_ && SkipSpace(text.substr(0, sent), 0) == sent) return false;
  blank_ = false;
  Take(PieceKind::kContent, sent);
  return true;
}

void AnswerParser::BeginCall(std::size_t tag) {
  const std::string_view before = std::string_view(held_).substr(0, tag);
  const bool all_blank = blank_ && SkipSpace(before, 0) == before.size();
  const std::size_t space =
      all_blank ? tag : SpaceBeforeTag(before, format_.before_call);
  if (tag > space) blank_ = false;
  Take(PieceKind::kContent, tag - space);
  call_tag_end_ = space + kToolCall.size();
  call_ = MakeCallReader(format_.calls, call_tag_end_, *tools_);
  state_ = State::kCall;
}

bool AnswerParser::StepCall(bool final) {
  const CallReader::Result result = call_->Read(final, &held_, &pieces_);
  if (result == CallReader::Result::kMore) return false;
  const bool announced = call_->announced();
  call_.reset();
  called_ = called_ || announced;
  blank_ = announced;
  if (!announced) Take(PieceKind::kContent, call_tag_end_);
  state_ =
      result == CallReader::Result::kDone ? State::kCallEnd : State::kContent;
  return true;
}

bool AnswerParser::StepCallEnd(bool final) {
  const std::size_t at = SkipSpace(held_, 0);
  const Match match =
      StartsWith(std::string_view(held_).substr(at), kToolCallEnd);
  if (match == Match::kMaybe && !final) return false;
  if (match == Match::kYes) {
    Take(PieceKind::kMarkup, at + kToolCallEnd.size());
  }
  state_ = State::kContent;
  return true;
}

}  // namespace holdfast::answer
