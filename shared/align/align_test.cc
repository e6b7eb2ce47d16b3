#include "shared/align/align.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast::align {
namespace {

using Ids = std::vector<TokenId>;

Printed All(const ClientAnswer&, const Turn&) { return {}; }

std::string Names(const std::vector<Rule>& rules) {
  std::string names;
  for (const Rule rule : rules) {
    names += (names.empty() ? "" : " ") + std::string(RuleName(rule));
  }
  return names;
}

// 1 2 | 10 11 12 13: a question, then <think> (10), its reasoning (11),
// </think> (12) and the content (13); 9 ends a turn and is not forwarded.
Record OneTurn() {
  Turn turn{.begin = 2,
            .opening_end = 3,
            .end = 6,
            .reasoning_end = 4,
            .reasoning = {"Hm.", {}},
            .content = {"Yes.", {}},
            .calls = {},
            .hidden = {}};
  return {.ids = {1, 2, 10, 11, 12, 13, 9}, .end = 6, .turns = {turn}};
}

// The question, an answer in other tokens, its end, the next question.
Alignment AlignCopy(const Record& record, const ClientAnswer& copy,
                    const PrintedAs& printed = All,
                    const Ids& question = {1, 2}) {
  const Ids answer = {20, 21};
  const Ids next = {9, 3, 4};
  const std::vector<Segment> prompt = {
      {question, nullptr}, {answer, &copy}, {next, nullptr}};
  return Align(record, prompt, printed);
}

const Ids kServed = {1, 2, 10, 11, 12, 13, 9, 3, 4};
const Ids kAsSent = {1, 2, 20, 21, 9, 3, 4};

TEST(AlignTest, OtherTokensOfTheSameText) {
  const Alignment aligned = AlignCopy(OneTurn(), {"Hm.", "Yes.", {}});
  EXPECT_EQ(aligned.ids, kServed);
  EXPECT_TRUE(aligned.at_end);
  EXPECT_EQ(aligned.matched, 7u);
  EXPECT_EQ(Names(aligned.rules), "tokens");
}

TEST(AlignTest, TheRecordsOwnTokensNeedNoRule) {
  const Record record = OneTurn();
  const ClientAnswer copy{"something", "else", {}};
  const Ids question = {1, 2};
  const Ids answer = {10, 11, 12, 13};
  const Ids next = {9, 3};
  const std::vector<Segment> prompt = {
      {question, nullptr}, {answer, &copy}, {next, nullptr}};
  const Alignment aligned = Align(record, prompt, All);
  EXPECT_EQ(aligned.ids, (Ids{1, 2, 10, 11, 12, 13, 9, 3}));
  EXPECT_TRUE(aligned.at_end);
  EXPECT_TRUE(aligned.rules.empty());
}

TEST(AlignTest, WithoutItsReasoning) {
  const Alignment aligned = AlignCopy(OneTurn(), {"", "Yes.", {}});
  EXPECT_EQ(aligned.ids, kServed);
  EXPECT_EQ(Names(aligned.rules), "reasoning");
  // Where the template takes it out itself, the copy stays as it is.
  const auto hides = [](const ClientAnswer&, const Turn&) {
    return Printed{.text = true, .reasoning = false};
  };
  const Alignment parted = AlignCopy(OneTurn(), {"", "Yes.", {}}, hides);
  EXPECT_EQ(parted.ids, kAsSent);
  EXPECT_FALSE(parted.at_end);
  EXPECT_EQ(parted.matched, 2u);
  EXPECT_TRUE(parted.rules.empty());
  EXPECT_EQ(AlignCopy(OneTurn(), {"Hm.", "Yes.", {}}, hides).ids, kAsSent);
}

TEST(AlignTest, ATemplateThatPrintsAnotherText) {
  const auto changes = [](const ClientAnswer&, const Turn&) {
    return Printed{.text = false, .reasoning = true};
  };
  EXPECT_EQ(AlignCopy(OneTurn(), {"Hm.", "Yes.", {}}, changes).ids, kAsSent);
}

TEST(AlignTest, WhatWasNotSentIsNotServed) {
  EXPECT_EQ(AlignCopy(OneTurn(), {"Hm.", "No.", {}}).ids, kAsSent);
  EXPECT_EQ(AlignCopy(OneTurn(), {"Hmm.", "Yes.", {}}).ids, kAsSent);
  EXPECT_EQ(AlignCopy(OneTurn(), {"Hm.", "Yes.", {{"f", "{}"}}}).ids, kAsSent);
  EXPECT_EQ(AlignCopy(OneTurn(), {"Yes.", "Hm.", {}}).ids, kAsSent);
  // Another question: the answer is not this one's.
  EXPECT_EQ(AlignCopy(OneTurn(), {"Hm.", "Yes.", {}}, All, {1, 3}).ids,
            (Ids{1, 3, 20, 21, 9, 3, 4}));
  EXPECT_EQ(AlignCopy(OneTurn(), {"Hm.", "Yes.", {}}, All, {1}).ids,
            (Ids{1, 20, 21, 9, 3, 4}));
}

TEST(AlignTest, AnEditBehindAnAlignedAnswerKeepsIt) {
  Record record = OneTurn();
  record.ids = {1, 2, 10, 11, 12, 13, 9, 3, 4, 5, 30, 31};
  record.end = 11;
  const Alignment aligned = AlignCopy(record, {"", "Yes.", {}});
  EXPECT_EQ(aligned.ids, kServed);
  EXPECT_EQ(aligned.matched, 9u);
  EXPECT_FALSE(aligned.at_end);
}

TEST(AlignTest, HiddenSpansArePutBack) {
  Record record = OneTurn();
  record.turns[0].hidden = {{HiddenKind::kThinkingBudget, 4, 5}};
  record.turns[0].reasoning = {"Hm. ", {{3, 4}}};
  EXPECT_EQ(Names(AlignCopy(record, {"Hm. ", "Yes.", {}}).rules),
            "hidden_span");
  const Alignment loose = AlignCopy(record, {"Hm.\n\n", "Yes.", {}});
  EXPECT_EQ(loose.ids, kServed);
  EXPECT_EQ(Names(loose.rules), "hidden_span white_space");
}

TEST(AlignTest, CallsWrittenAgain) {
  Record record = OneTurn();
  record.turns[0].calls = {{"f", R"({"b": 1, "a": [2]})"}};
  const auto names = [&](const Call& call) {
    const Alignment aligned = AlignCopy(record, {"Hm.", "Yes.", {call}});
    return aligned.at_end ? Names(aligned.rules) : "as sent";
  };
  EXPECT_EQ(names({"f", R"({"b": 1, "a": [2]})"}), "tokens");
  EXPECT_EQ(names({"f", R"({"a":[2],"b":1})"}), "tool_calls");
  EXPECT_EQ(names({"f", R"({"a":[3],"b":1})"}), "as sent");
  EXPECT_EQ(names({"g", R"({"a":[2],"b":1})"}), "as sent");
  record.turns[0].calls[0].arguments = R"({"b": 1, "a")";  // broke off
  EXPECT_EQ(names({"f", R"({"b": 1, "a")"}), "tokens");
  EXPECT_EQ(names({"f", R"({"b": 1})"}), "as sent");
}

TEST(AlignTest, BrokenBytesAndNewlines) {
  Record record = OneTurn();
  record.turns[0].content = {"Yes\xEF\xBF\xBD.", {}};
  EXPECT_EQ(Names(AlignCopy(record, {"Hm.", "Yes\xEF\xBF\xBD.\n", {}}).rules),
            "newline replacement");
}

TEST(AlignTest, AnEmptyRecordChangesNothing) {
  const Alignment aligned = AlignCopy({}, {"Hm.", "Yes.", {}});
  EXPECT_EQ(aligned.ids, kAsSent);
  EXPECT_EQ(aligned.matched, 0u);
}

}  // namespace
}  // namespace holdfast::align
