// Random records and copies of them. What is served is checked by a reading of
// the rules that shares nothing with the aligner: regular expressions, and
// nlohmann's own comparison of JSON.
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "shared/align/align.h"

namespace holdfast::align {
namespace {

using Ids = std::vector<TokenId>;

const std::vector<std::string> kWords = {
    "a", "b", "ab", " a", "b ", "\xEF\xBF\xBD", " ", "\n", " \n", "\n\n", "."};
constexpr TokenId kEnd = 500;
constexpr TokenId kTag = 501;

bool Blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

// One conversation as it was served, and as a client has it.
class Conversation {
 public:
  explicit Conversation(std::uint64_t seed) : random_(seed) {
    const int turns = Upto(3);
    for (int i = 0; i <= turns; ++i) AddTurn();
    AddPlain();
    record_.end = record_.ids.size() - Upto(1);
  }

  const Record& record() const { return record_; }
  std::vector<Segment> Prompt() const {
    std::vector<Segment> prompt;
    for (const Piece& piece : pieces_) {
      prompt.push_back({piece.ids, piece.turn >= 0 ? &piece.answer : nullptr});
    }
    return prompt;
  }
  Printed PrintedAs(const Turn& turn) const {
    for (std::size_t i = 0; i < record_.turns.size(); ++i) {
      if (record_.turns[i].begin == turn.begin) return printed_[i];
    }
    ADD_FAILURE() << "a turn that is not in the record";
    return {};
  }

  // What the rules make of the prompt.
  Ids Expected(bool* at_end) const {
    Ids served;
    bool together = true;
    for (const Piece& piece : pieces_) {
      const Ids* ids = &piece.ids;
      Ids recorded;
      if (together && piece.turn >= 0 && MayStand(piece)) {
        const Turn& turn = record_.turns[piece.turn];
        recorded.assign(record_.ids.begin() + turn.begin,
                        record_.ids.begin() + turn.end);
        ids = &recorded;
      }
      served.insert(served.end(), ids->begin(), ids->end());
      together = together && served.size() <= record_.ids.size() &&
                 std::equal(served.begin(), served.end(), record_.ids.begin());
    }
    std::size_t shared = 0;
    while (shared < served.size() && shared < record_.ids.size() &&
           served[shared] == record_.ids[shared]) {
      ++shared;
    }
    *at_end = shared >= record_.end;
    return served;
  }

 private:
  struct Piece {
    Ids ids;
    int turn = -1;  // -1: no answer
    ClientAnswer answer;
  };

  int Upto(int most) {
    return std::uniform_int_distribution<int>(0, most)(random_);
  }
  bool OneIn(int n) { return Upto(n - 1) == 0; }

  void AddPlain() {
    Piece piece;
    const int tokens = 1 + Upto(3);
    for (int i = 0; i < tokens; ++i) piece.ids.push_back(600 + Upto(2));
    record_.ids.insert(record_.ids.end(), piece.ids.begin(), piece.ids.end());
    if (OneIn(12)) piece.ids.back() = 700;  // an edited question
    pieces_.push_back(std::move(piece));
  }

  // Tokens of a text, some of them hidden.
  void AddText(SentText* text, Turn* turn) {
    struct Token {
      TokenId id;
      bool hidden;
    };
    std::vector<Token> tokens;
    const int count = Upto(6);
    for (int i = 0; i < count; ++i) {
      const auto id = static_cast<TokenId>(Upto(kWords.size() - 1));
      tokens.push_back({id, OneIn(6)});
    }
    const auto loose = [&](int i) {  // white space beside a hidden token
      if (tokens[i].hidden || !Blank(kWords[tokens[i].id])) return false;
      int left = i, right = i;
      while (left >= 0 && !tokens[left].hidden &&
             Blank(kWords[tokens[left].id])) {
        --left;
      }
      while (right < count && !tokens[right].hidden &&
             Blank(kWords[tokens[right].id])) {
        ++right;
      }
      return (left >= 0 && tokens[left].hidden) ||
             (right < count && tokens[right].hidden);
    };
    bool in_gap = false;
    for (int i = 0; i < count; ++i) {
      const std::size_t at = record_.ids.size();
      record_.ids.push_back(tokens[i].id);
      const std::size_t byte = text->text.size();
      if (tokens[i].hidden) {
        turn->hidden.push_back({HiddenKind::kThinkingBudget, at, at + 1});
        if (!in_gap) text->gaps.push_back({byte, byte});
        in_gap = true;
        continue;
      }
      text->text += kWords[tokens[i].id];
      if (loose(i)) {
        if (!in_gap) text->gaps.push_back({byte, byte});
        text->gaps.back().end = text->text.size();
        in_gap = true;
      } else {
        in_gap = false;
      }
    }
  }

  std::string Copy(const SentText& sent) {
    std::string copy = sent.text;
    if (OneIn(3)) {
      for (auto gap = sent.gaps.rbegin(); gap != sent.gaps.rend(); ++gap) {
        const char* spaces[] = {"", " ", "\n\n", "\r\n\t"};
        copy.replace(gap->begin, gap->end - gap->begin, spaces[Upto(3)]);
      }
    }
    if (OneIn(6)) copy += '\n';
    if (OneIn(6) && copy.ends_with('\n')) copy.pop_back();
    if (OneIn(10)) copy.insert(Upto(copy.size()), "x");
    if (OneIn(10)) copy.insert(Upto(copy.size()), " ");
    return copy;
  }

  void AddTurn() {
    AddPlain();
    Turn turn;
    turn.begin = record_.ids.size();
    if (OneIn(2)) {
      record_.ids.push_back(kTag);
      AddText(&turn.reasoning, &turn);
      record_.ids.push_back(kTag);
      turn.reasoning_end = record_.ids.size();
    }
    AddText(&turn.content, &turn);
    if (OneIn(3)) {
      turn.calls.push_back({"f", R"({"b": 1, "a": [1, {"c": "d"}]})"});
      record_.ids.push_back(502);
    }
    turn.end = record_.ids.size();
    Piece piece;
    piece.turn = static_cast<int>(record_.turns.size());
    piece.answer = {.reasoning = OneIn(3) ? "" : Copy(turn.reasoning),
                    .content = Copy(turn.content),
                    .calls = turn.calls};
    for (Call& call : piece.answer.calls) {
      if (OneIn(3)) call.arguments = R"({"a":[1,{"c":"d"}],"b":1})";
      if (OneIn(9)) call.arguments = R"({"a":[1,{"c":"e"}],"b":1})";
      if (OneIn(12)) call.name = "g";
    }
    if (OneIn(4)) {
      piece.ids.assign(record_.ids.begin() + turn.begin, record_.ids.end());
    } else {
      piece.ids.assign(1 + Upto(4), 800);
    }
    printed_.push_back({.text = !OneIn(10), .reasoning = !OneIn(6)});
    record_.turns.push_back(std::move(turn));
    pieces_.push_back(std::move(piece));
    record_.ids.push_back(kEnd);
    Piece end;
    end.ids = {kEnd};
    pieces_.push_back(std::move(end));
  }

  // ---- the rules, read again
  static bool SameText(const SentText& sent, const std::string& client) {
    std::string pattern;
    const auto fixed = [&](std::size_t begin, std::size_t end) {
      for (const char c : sent.text.substr(begin, end - begin)) {
        if (std::string_view("().[]*+?^$|{}\\").find(c) !=
            std::string_view::npos) {
          pattern += '\\';
        }
        pattern += c;
      }
    };
    std::size_t at = 0;
    for (const SentText::Gap& gap : sent.gaps) {
      fixed(at, gap.begin);
      pattern += "[ \\t\\r\\n]*";
      at = gap.end;
    }
    // The last newline of what is fixed may be missing; or there is one more.
    const bool optional = at < sent.text.size() && sent.text.ends_with('\n');
    fixed(at, sent.text.size() - (optional ? 1 : 0));
    pattern += optional ? "\n?\n?" : "\n?";
    return std::regex_match(client, std::regex(pattern));
  }

  bool MayStand(const Piece& piece) const {
    const Turn& turn = record_.turns[piece.turn];
    const Ids recorded(record_.ids.begin() + turn.begin,
                       record_.ids.begin() + turn.end);
    if (piece.ids == recorded) return true;
    const Printed& printed = printed_[piece.turn];
    if (!printed.text || (!turn.reasoning.text.empty() && !printed.reasoning)) {
      return false;
    }
    const bool dropped =
        piece.answer.reasoning.empty() && !turn.reasoning.text.empty();
    if (!dropped && !SameText(turn.reasoning, piece.answer.reasoning)) {
      return false;
    }
    if (!SameText(turn.content, piece.answer.content)) return false;
    for (std::size_t i = 0; i < turn.calls.size(); ++i) {
      const Call& theirs = piece.answer.calls.at(i);
      if (theirs.name != turn.calls[i].name ||
          nlohmann::json::parse(theirs.arguments) !=
              nlohmann::json::parse(turn.calls[i].arguments)) {
        return false;
      }
    }
    return true;
  }

  std::mt19937_64 random_;
  Record record_;
  std::vector<Piece> pieces_;
  std::vector<Printed> printed_;
};

TEST(AlignFuzzTest, ServesWhatTheRulesSay) {
  int at_end = 0;
  int changed = 0;
  std::vector<int> used(kRules);
  constexpr int kConversations = 20000;
  for (std::uint64_t seed = 0; seed < kConversations; ++seed) {
    SCOPED_TRACE(seed);
    const Conversation conversation(seed);
    const std::vector<Segment> prompt = conversation.Prompt();
    const Alignment aligned = Align(conversation.record(), prompt,
                                    [&](const ClientAnswer&, const Turn& turn) {
                                      return conversation.PrintedAs(turn);
                                    });
    bool expect_end = false;
    const Ids expected = conversation.Expected(&expect_end);
    ASSERT_EQ(aligned.ids, expected);
    ASSERT_EQ(aligned.at_end, expect_end);
    ASSERT_LE(aligned.matched, aligned.ids.size());
    Ids as_rendered;
    for (const Segment& segment : prompt) {
      as_rendered.insert(as_rendered.end(), segment.ids.begin(),
                         segment.ids.end());
    }
    ASSERT_EQ(aligned.rules.empty(), aligned.ids == as_rendered);
    at_end += aligned.at_end;
    changed += !aligned.rules.empty();
    for (const Rule rule : aligned.rules) ++used[static_cast<int>(rule)];
  }
  // That each case really came up.
  EXPECT_GT(at_end, kConversations / 20);
  EXPECT_GT(changed, kConversations / 4);
  for (int rule = 0; rule < kRules; ++rule) {
    EXPECT_GT(used[rule], 100) << RuleName(static_cast<Rule>(rule));
  }
}

}  // namespace
}  // namespace holdfast::align
