#include "gateway/openai/stop_filter.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast::openai {
namespace {

TEST(StopFilterTest, WithoutStopsEverythingPasses) {
  StopFilter filter({});
  EXPECT_EQ(filter.Push("abc"), "abc");
  EXPECT_EQ(filter.Finish(), "");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopFilterTest, WithholdsFromTheStartOfTheMatch) {
  StopFilter filter({"END"});
  EXPECT_EQ(filter.Push("ab ENDcd"), "ab ");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.Push("more"), "");
  EXPECT_EQ(filter.Finish(), "");
}

TEST(StopFilterTest, HoldsBackWhatCouldBeginAMatch) {
  StopFilter filter({"END"});
  EXPECT_EQ(filter.Push("a E"), "a ");
  EXPECT_EQ(filter.Push("N"), "");
  EXPECT_EQ(filter.Push("E"), "EN");
  EXPECT_EQ(filter.Push("N"), "");
  EXPECT_EQ(filter.Finish(), "EN");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopFilterTest, MatchAcrossPieces) {
  StopFilter filter({"\n\nUser:"});
  EXPECT_EQ(filter.Push("x\n"), "x");
  EXPECT_EQ(filter.Push("\n\n"), "\n");  // the last two may begin it
  EXPECT_EQ(filter.Push("User"), "");
  EXPECT_EQ(filter.Push(": y"), "");
  EXPECT_TRUE(filter.stopped());
}

TEST(StopFilterTest, TheMatchThatEndsFirstCounts) {
  StopFilter filter({"abcd", "bc"});
  EXPECT_EQ(filter.Push("abcd"), "a");
  EXPECT_TRUE(filter.stopped());
  StopFilter together({"bc", "abc"});
  EXPECT_EQ(together.Push("xabc"), "x");
}

TEST(StopFilterTest, CharactersAreNeverCut) {
  StopFilter filter({"\xE2\x82\xAC\xE2\x82\xAC"});  // two euro signs
  EXPECT_EQ(filter.Push("1\xE2\x82\xAC"), "1");
  EXPECT_EQ(filter.Push("\xE2\x82\xAD"), "\xE2\x82\xAC\xE2\x82\xAD");
}

// What a client sees in the end: cut at the first match, or all.
std::string Reference(const std::string& text,
                      const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopFilterTest, HowTextIsCutMakesNoDifference) {
  std::mt19937 random(7);
  const auto word = [&random](std::size_t least, std::size_t most) {
    std::string text;
    const std::size_t length = least + random() % (most - least + 1);
    for (std::size_t i = 0; i < length; ++i) text += "ab"[random() % 2];
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (std::size_t i = random() % 4; i > 0; --i) stops.push_back(word(1, 6));
    const std::string text = word(0, 24);
    StopFilter filter(stops);
    std::string seen;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = 1 + random() % 5;
      seen += filter.Push(text.substr(at, length));
      ASSERT_TRUE(Reference(text, stops).starts_with(seen));
      at += length;
    }
    seen += filter.Finish();
    ASSERT_EQ(seen, Reference(text, stops)) << text;
    stopped += filter.stopped() ? 1 : 0;
  }
  EXPECT_GT(stopped, 1000);
}

}  // namespace
}  // namespace holdfast::openai
