#include "shared/align/match_text.h"

#include <string>

#include "gtest/gtest.h"

namespace holdfast::align {
namespace {

// "equal", with the rules that were needed.
std::string Match(const SentText& sent, std::string_view client) {
  const TextMatch match = MatchText(sent, client);
  if (!match.equal) {
    EXPECT_FALSE(match.white_space || match.newline);
    return "different";
  }
  return std::string("equal") + (match.white_space ? " white_space" : "") +
         (match.newline ? " newline" : "");
}

TEST(MatchTextTest, ByteForByte) {
  EXPECT_EQ(Match({"a b", {}}, "a b"), "equal");
  EXPECT_EQ(Match({"a b", {}}, "a  b"), "different");
  EXPECT_EQ(Match({"a b", {}}, "a"), "different");
  EXPECT_EQ(Match({"", {}}, ""), "equal");
  EXPECT_EQ(Match({"", {}}, "a"), "different");
}

TEST(MatchTextTest, OneNewlineAtTheEnd) {
  EXPECT_EQ(Match({"a", {}}, "a\n"), "equal newline");
  EXPECT_EQ(Match({"a\n", {}}, "a"), "equal newline");
  EXPECT_EQ(Match({"a\n\n", {}}, "a\n"), "equal newline");
  EXPECT_EQ(Match({"a", {}}, "a\n\n"), "different");
  EXPECT_EQ(Match({"a\n\n", {}}, "a"), "different");
  EXPECT_EQ(Match({"a", {}}, "a "), "different");
  EXPECT_EQ(Match({"a", {}}, "\na"), "different");
}

TEST(MatchTextTest, AnyWhiteSpaceInGaps) {
  const SentText sent{"one \n two", {{3, 5}}};
  EXPECT_EQ(Match(sent, "one \n two"), "equal");
  EXPECT_EQ(Match(sent, "one two"), "equal white_space");
  EXPECT_EQ(Match(sent, "one\r\n\t two"), "equal white_space");
  EXPECT_EQ(Match(sent, "onetwo"), "different");  // " two" is fixed
  EXPECT_EQ(Match(sent, "one \n  two\n"), "equal white_space newline");
  EXPECT_EQ(Match(sent, "one x two"), "different");
  EXPECT_EQ(Match(sent, "o ne two"), "different");
}

TEST(MatchTextTest, EmptyGaps) {
  const SentText end{"text", {{4, 4}}};
  EXPECT_EQ(Match(end, "text \n\n"), "equal white_space");
  const SentText start{"text", {{0, 0}}};
  EXPECT_EQ(Match(start, "\n text"), "equal white_space");
  EXPECT_EQ(Match(start, "\n text\n"), "equal white_space newline");
  const SentText only{"", {{0, 0}}};
  EXPECT_EQ(Match(only, " \n "), "equal white_space");
}

TEST(MatchTextTest, SeveralGaps) {
  const SentText sent{"a b c", {{1, 2}, {3, 4}}};
  EXPECT_EQ(Match(sent, "abc"), "equal white_space");
  EXPECT_EQ(Match(sent, "a  b\nc"), "equal white_space");
  EXPECT_EQ(Match(sent, "a bc d"), "different");
}

TEST(MatchTextTest, LongRunsOfWhiteSpaceTakeNoTime) {
  SentText sent;
  for (int i = 0; i < 64; ++i) sent.gaps.push_back({0, 0});
  sent.text = "x";
  EXPECT_EQ(Match(sent, std::string(10000, ' ') + "x"), "equal white_space");
  EXPECT_EQ(Match(sent, std::string(10000, ' ') + "y"), "different");
}

}  // namespace
}  // namespace holdfast::align
