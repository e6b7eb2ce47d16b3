#include "gateway/service/record_protos.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace holdfast::gateway {
namespace {

align::HiddenKind FromProto(v1::HiddenSpan::Kind kind) {
  switch (kind) {
    case v1::HiddenSpan::THINKING_BUDGET:
      return align::HiddenKind::kThinkingBudget;
    case v1::HiddenSpan::STOP_STRING:
      return align::HiddenKind::kStopString;
    default:
      return align::HiddenKind::kEndOfTurn;
  }
}

v1::HiddenSpan::Kind ToProto(align::HiddenKind kind) {
  switch (kind) {
    case align::HiddenKind::kThinkingBudget:
      return v1::HiddenSpan::THINKING_BUDGET;
    case align::HiddenKind::kStopString:
      return v1::HiddenSpan::STOP_STRING;
    case align::HiddenKind::kEndOfTurn:
      break;
  }
  return v1::HiddenSpan::END_OF_TURN;
}

align::SentText FromProto(const v1::SentText& proto) {
  align::SentText text{.text = proto.text(), .gaps = {}};
  for (const v1::SentText::Gap& gap : proto.gaps()) {
    text.gaps.push_back({gap.begin_bytes(), gap.end_bytes()});
  }
  return text;
}

void ToProto(const align::SentText& text, v1::SentText* proto) {
  proto->set_text(text.text);
  for (const align::SentText::Gap& gap : text.gaps) {
    v1::SentText::Gap* out = proto->add_gaps();
    out->set_begin_bytes(static_cast<std::uint32_t>(gap.begin));
    out->set_end_bytes(static_cast<std::uint32_t>(gap.end));
  }
}

align::Turn FromProto(const v1::SentTurn& proto) {
  align::Turn turn{.begin = proto.begin_tokens(),
                   .opening_end = proto.opening_end_tokens(),
                   .end = proto.end_tokens(),
                   .reasoning_end = proto.reasoning_end_tokens(),
                   .reasoning = FromProto(proto.reasoning()),
                   .content = FromProto(proto.content()),
                   .calls = {},
                   .hidden = {}};
  for (const v1::SentCall& call : proto.calls()) {
    turn.calls.push_back({call.name(), call.arguments()});
  }
  for (const v1::HiddenSpan& span : proto.hidden()) {
    turn.hidden.push_back(
        {FromProto(span.kind()), span.begin_tokens(), span.end_tokens()});
  }
  return turn;
}

bool CanBe(const align::Turn& turn, std::size_t below, std::size_t ids) {
  return below <= turn.begin && turn.begin <= turn.opening_end &&
         turn.opening_end <= turn.end && turn.reasoning_end <= turn.end &&
         (turn.reasoning_end == 0 || turn.begin <= turn.reasoning_end) &&
         turn.end <= ids;
}

}  // namespace

align::Record FromProto(const v1::SessionRecord& proto) {
  align::Record record;
  record.ids.assign(proto.ids().begin(), proto.ids().end());
  record.end = std::min<std::size_t>(proto.end_tokens(), record.ids.size());
  std::size_t below = 0;
  for (const v1::SentTurn& sent : proto.turns()) {
    align::Turn turn = FromProto(sent);
    if (!CanBe(turn, below, record.ids.size())) break;
    below = turn.end;
    record.turns.push_back(std::move(turn));
  }
  return record;
}

void ToProto(const align::Turn& turn, v1::SentTurn* proto) {
  proto->set_begin_tokens(static_cast<std::uint32_t>(turn.begin));
  proto->set_opening_end_tokens(static_cast<std::uint32_t>(turn.opening_end));
  proto->set_end_tokens(static_cast<std::uint32_t>(turn.end));
  proto->set_reasoning_end_tokens(
      static_cast<std::uint32_t>(turn.reasoning_end));
  ToProto(turn.reasoning, proto->mutable_reasoning());
  ToProto(turn.content, proto->mutable_content());
  for (const align::Call& call : turn.calls) {
    v1::SentCall* out = proto->add_calls();
    out->set_name(call.name);
    out->set_arguments(call.arguments);
  }
  for (const align::HiddenSpan& span : turn.hidden) {
    v1::HiddenSpan* out = proto->add_hidden();
    out->set_kind(ToProto(span.kind));
    out->set_begin_tokens(static_cast<std::uint32_t>(span.begin));
    out->set_end_tokens(static_cast<std::uint32_t>(span.end));
  }
}

}  // namespace holdfast::gateway
