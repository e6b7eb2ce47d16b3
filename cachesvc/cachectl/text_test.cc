#include "cachesvc/cachectl/text.h"

#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

TEST(TextTest, Bytes) {
  EXPECT_EQ(ParseBytes("50GB"), 50'000'000'000u);
  EXPECT_EQ(ParseBytes("1.5gb"), 1'500'000'000u);
  EXPECT_EQ(ParseBytes("4096"), 4096u);
  EXPECT_EQ(ParseBytes("2kB"), 2000u);
  for (const char* bad : {"", "GB", "-1", "1XB", "1 GB", "nan", "1e30TB"}) {
    EXPECT_FALSE(ParseBytes(bad).has_value()) << bad;
  }
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(1'500'000'000), "1.5 GB");
}

TEST(TextTest, Seconds) {
  EXPECT_EQ(ParseSeconds("7d"), 7u * 86400);
  EXPECT_EQ(ParseSeconds("90"), 90u);
  EXPECT_EQ(ParseSeconds("1.5h"), 5400u);
  EXPECT_FALSE(ParseSeconds("7w").has_value());
  EXPECT_EQ(HumanSeconds(59), "59s");
  EXPECT_EQ(HumanSeconds(3 * 86400 + 4 * 3600 + 5), "3d 4h");
}

TEST(TextTest, HexAndTiers) {
  EXPECT_EQ(Hex("\x01\xfe"), "01fe");
  EXPECT_EQ(Unhex("01FE"), "\x01\xfe");
  EXPECT_FALSE(Unhex("0").has_value());
  EXPECT_FALSE(Unhex("0g").has_value());
  for (const char* name : {"store", "disk", "spill"}) {
    EXPECT_EQ(TierText(ParseTier(name)), name);
  }
  EXPECT_EQ(ParseTier("chunks"), v1::TIER_UNSPECIFIED);
  EXPECT_EQ(Printable("a\x1b[31m"), "a?[31m");
}

}  // namespace
}  // namespace holdfast::cachesvc
