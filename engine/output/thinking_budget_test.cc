#include "engine/output/thinking_budget.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

ThinkingLimit Limit(int tokens, bool open) {
  return {.tokens = tokens,
          .open = open,
          .open_tag = "<think>",
          .close_tag = "</think>",
          .words = {901, 902}};
}

// What comes: the model's tokens until the budget has words, then those.
std::string Play(const std::optional<ThinkingLimit>& limit,
                 const std::vector<std::string>& model) {
  ThinkingBudget budget(limit);
  std::string text;
  std::size_t at = 0;
  while (at < model.size()) {
    if (const auto word = budget.Next()) {
      text += "[" + std::to_string(*word) + "]";
      budget.Token("");
    } else {
      text += model[at];
      budget.Token(model[at++]);
    }
  }
  return text;
}

TEST(ThinkingBudgetTest, ClosesWhatThePromptOpened) {
  EXPECT_EQ(Play(Limit(2, true), {"a", "b", "c"}), "ab[901][902]c");
  EXPECT_EQ(Play(Limit(0, true), {"a"}), "[901][902]a");
  EXPECT_EQ(Play(Limit(3, true), {"a", "b"}), "ab");
}

TEST(ThinkingBudgetTest, ThinkingThatEndsInTimeIsLeftAlone) {
  EXPECT_EQ(Play(Limit(2, true), {"a", "</think>", "b", "c", "d"}),
            "a</think>bcd");
  // The tag in pieces, and within a token; it is no thinking itself.
  EXPECT_EQ(Play(Limit(5, true), {"a", "</th", "ink>", "b", "c", "d", "e"}),
            "a</think>bcde");
  EXPECT_EQ(Play(Limit(2, true), {"a", ".</think>\n", "b", "c"}),
            "a.</think>\nbc");
}

TEST(ThinkingBudgetTest, ClosesWhatTheAnswerOpened) {
  EXPECT_EQ(Play(Limit(1, false), {"\n", "<think>", "a", "b"}),
            "\n<think>a[901][902]b");
  EXPECT_EQ(Play(Limit(1, false), {"<th", "ink>", "a", "b"}),
            "<think>a[901][902]b");
  EXPECT_EQ(Play(Limit(0, false), {"<think>", "a"}), "<think>[901][902]a");
  // No thinking.
  EXPECT_EQ(Play(Limit(1, false), {"a", "<think>", "b", "c"}), "a<think>bc");
}

TEST(ThinkingBudgetTest, KnowsWhatComes) {
  ThinkingBudget budget(Limit(1, true));
  EXPECT_TRUE(budget.Ahead().empty());
  budget.Token("a");
  EXPECT_EQ(std::vector(budget.Ahead().begin(), budget.Ahead().end()),
            (std::vector<std::int32_t>{901, 902}));
  budget.Token("");
  ASSERT_EQ(budget.Ahead().size(), 1u);
  EXPECT_EQ(budget.Ahead()[0], 902);
  budget.Token("");
  EXPECT_TRUE(budget.Ahead().empty());
}

TEST(ThinkingBudgetTest, OnlyOnce) {
  EXPECT_EQ(Play(Limit(1, true), {"a", "b", "<think>", "c", "d"}),
            "a[901][902]b<think>cd");
}

TEST(ThinkingBudgetTest, WithoutALimitNothingHappens) {
  EXPECT_EQ(Play(std::nullopt, {"<think>", "a", "b"}), "<think>ab");
}

}  // namespace
}  // namespace holdfast::engine
