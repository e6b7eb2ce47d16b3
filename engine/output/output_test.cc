#include <string>
#include <vector>

#include "engine/output/stop_matcher.h"
#include "engine/output/token_bytes.h"
#include "engine/testing/fake_model.h"
#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

TEST(TokenBytesTest, ByteLevelAlphabet) {
  EXPECT_EQ(DecodeByteLevel("\xC4\xA0hi"), " hi");             // U+0120
  EXPECT_EQ(DecodeByteLevel("\xC4\x8A"), "\n");                // U+010A
  EXPECT_EQ(DecodeByteLevel("\xC3\xA9"), "\xE9");              // U+00E9: a byte
  EXPECT_EQ(DecodeByteLevel("\xE2\x82\xAC"), "\xE2\x82\xAC");  // outside
  EXPECT_EQ(DecodeByteLevel("\xC5\xA0"), "\xC5\xA0");          // outside
  EXPECT_EQ(DecodeByteLevel("\xC4"), "\xC4");                  // cut short
}

TEST(TokenBytesTest, EveryByteAndTheAddedTokens) {
  const TokenBytes bytes(testing::FakeTokenizer());
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(bytes.Of(byte), std::string(1, static_cast<char>(byte))) << byte;
  }
  EXPECT_EQ(bytes.Of(testing::kFakeEos), "");  // special: nothing
  EXPECT_EQ(bytes.Of(257), "<tool>");          // added, not special: its text
  EXPECT_EQ(bytes.Of(1000000), "");
  EXPECT_EQ(bytes.Of(-1), "");
}

TEST(StopMatcherTest, AcrossTokens) {
  StopMatcher stops({"END", "\n\n"});
  EXPECT_EQ(stops.Append("the E"), std::nullopt);
  EXPECT_EQ(stops.Append("N"), std::nullopt);
  EXPECT_EQ(stops.Append("D."), 0);
}

TEST(StopMatcherTest, TheOneThatBeginsFirst) {
  StopMatcher stops({"bc", "abcd"});
  EXPECT_EQ(stops.Append("xabcd"), 1);
  StopMatcher equal({"ab", "abc"});
  EXPECT_EQ(equal.Append("abc"), 0);
}

TEST(StopMatcherTest, NothingIsFoundTwiceOrInOldBytes) {
  StopMatcher stops({"aba"});
  EXPECT_EQ(stops.Append("ab"), std::nullopt);
  EXPECT_EQ(stops.Append("b"), std::nullopt);
  EXPECT_EQ(stops.Append("a"), std::nullopt);
  EXPECT_EQ(stops.Append("ba"), 0);
  StopMatcher none({});
  EXPECT_EQ(none.Append("anything"), std::nullopt);
  StopMatcher one({"x"});
  EXPECT_EQ(one.Append(""), std::nullopt);
  EXPECT_EQ(one.Append("ax"), 0);
}

// Byte by byte finds what the whole has.
TEST(StopMatcherTest, AnySplitIsTheSame) {
  const std::string text = "one\n\ntwo\r\nthree<|x|>four";
  const std::vector<std::string> all = {"<|x|>", "thre", "\r\n", "four"};
  for (const std::string& stop : all) {
    StopMatcher stops({stop});
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool ends_here = i + 1 == text.find(stop) + stop.size();
      EXPECT_EQ(stops.Append(text.substr(i, 1)).has_value(), ends_here);
      if (ends_here) break;
    }
  }
}

}  // namespace
}  // namespace holdfast::engine
