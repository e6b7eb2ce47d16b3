#include "shared/align/align.h"

#include <algorithm>

#include "shared/align/json_equal.h"
#include "shared/align/match_text.h"

namespace holdfast::align {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

void Add(Rule rule, std::vector<Rule>* rules) {
  const auto at = std::lower_bound(rules->begin(), rules->end(), rule);
  if (at == rules->end() || *at != rule) rules->insert(at, rule);
}

bool AddText(const SentText& sent, const std::string& client,
             std::vector<Rule>* rules) {
  const TextMatch match = MatchText(sent, client);
  if (match.white_space) Add(Rule::kWhiteSpace, rules);
  if (match.newline) Add(Rule::kNewline, rules);
  return match.equal;
}

bool AddCalls(const std::vector<Call>& sent, const std::vector<Call>& client,
              std::vector<Rule>* rules) {
  if (sent.size() != client.size()) return false;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (sent[i].name != client[i].name) return false;
    if (sent[i].arguments == client[i].arguments) continue;
    if (!EqualJson(sent[i].arguments, client[i].arguments)) return false;
    Add(Rule::kToolCalls, rules);
  }
  return true;
}

bool HasReplacement(const Turn& turn) {
  const auto in = [](const std::string& text) {
    return text.find(kReplacementCharacter) != std::string::npos;
  };
  return in(turn.reasoning.text) || in(turn.content.text) ||
         std::any_of(turn.calls.begin(), turn.calls.end(),
                     [&](const Call& call) { return in(call.arguments); });
}

// Walks through the prompt beside the record, as long as they agree.
class Walk {
 public:
  Walk(const Record& record, const PrintedAs& printed)
      : record_(record), printed_(printed) {}

  void Take(const Segment& segment) {
    if (!together_) return Serve(segment.ids);
    if (segment.answer == nullptr || !TakeAnswer(segment)) {
      TakeTokens(segment.ids);
    }
  }

  Alignment Finish() {
    result_.matched = at_;
    result_.at_end = at_ >= record_.end;
    return std::move(result_);
  }

 private:
  void Serve(std::span<const TokenId> ids) {
    result_.ids.insert(result_.ids.end(), ids.begin(), ids.end());
  }

  void TakeTokens(std::span<const TokenId> ids) {
    const auto rest = std::span(record_.ids).subspan(at_);
    const auto ends = std::ranges::mismatch(ids, rest);
    at_ += static_cast<std::size_t>(ends.in1 - ids.begin());
    together_ = ends.in1 == ids.end();
    Serve(ids);
  }

  // False: there is no such answer in the record.
  bool TakeAnswer(const Segment& segment) {
    const auto turn = std::ranges::find(record_.turns, at_, &Turn::begin);
    if (turn == record_.turns.end()) return false;
    const auto recorded =
        std::span(record_.ids).subspan(turn->begin, turn->end - turn->begin);
    if (!std::ranges::equal(segment.ids, recorded)) {
      if (!MayStand(*turn, *segment.answer)) return false;
    }
    Serve(recorded);
    at_ = turn->end;
    return true;
  }

  // Whether the turn's tokens stand for the client's answer; notes by what.
  bool MayStand(const Turn& turn, const ClientAnswer& answer) {
    const auto rules = MatchAnswer(turn, answer);
    if (!rules) return false;
    const Printed printed = printed_(answer, turn);
    if (!printed.text) return false;
    if (!turn.reasoning.text.empty() && !printed.reasoning) return false;
    for (const Rule rule : *rules) Add(rule, &result_.rules);
    if (!turn.hidden.empty()) Add(Rule::kHiddenSpan, &result_.rules);
    if (HasReplacement(turn)) Add(Rule::kReplacement, &result_.rules);
    if (rules->empty() && turn.hidden.empty() && !HasReplacement(turn)) {
      Add(Rule::kTokens, &result_.rules);
    }
    return true;
  }

  const Record& record_;
  const PrintedAs& printed_;
  Alignment result_;
  std::size_t at_ = 0;  // of the record
  bool together_ = true;
};

}  // namespace

const char* RuleName(Rule rule) {
  switch (rule) {
    case Rule::kTokens:
      return "tokens";
    case Rule::kHiddenSpan:
      return "hidden_span";
    case Rule::kWhiteSpace:
      return "white_space";
    case Rule::kReasoning:
      return "reasoning";
    case Rule::kToolCalls:
      return "tool_calls";
    case Rule::kNewline:
      return "newline";
    case Rule::kReplacement:
      break;
  }
  return "replacement";
}

std::optional<std::vector<Rule>> MatchAnswer(const Turn& turn,
                                             const ClientAnswer& client) {
  std::vector<Rule> rules;
  if (client.reasoning.empty() && !turn.reasoning.text.empty()) {
    Add(Rule::kReasoning, &rules);
  } else if (!AddText(turn.reasoning, client.reasoning, &rules)) {
    return std::nullopt;
  }
  if (!AddText(turn.content, client.content, &rules) ||
      !AddCalls(turn.calls, client.calls, &rules)) {
    return std::nullopt;
  }
  return rules;
}

Alignment Align(const Record& record, std::span<const Segment> prompt,
                const PrintedAs& printed) {
  Walk walk(record, printed);
  for (const Segment& segment : prompt) walk.Take(segment);
  return walk.Finish();
}

}  // namespace holdfast::align
