#include "shared/align/json_equal.h"

#include <string>

#include "gtest/gtest.h"

namespace holdfast::align {
namespace {

TEST(EqualJsonTest, SpacingAndOrderOfKeysDoNotCount) {
  EXPECT_TRUE(EqualJson(R"({"a": 1, "b": [true, null]})",
                        "{\"b\":[true,null],\n \"a\":1}"));
  EXPECT_TRUE(EqualJson(R"("\u00e9\/")", "\"\xC3\xA9/\""));
  EXPECT_TRUE(EqualJson("1.50", "15e-1"));
  EXPECT_TRUE(EqualJson("{}", " { } "));
}

TEST(EqualJsonTest, ValuesDo) {
  EXPECT_FALSE(EqualJson(R"({"a": 1})", R"({"a": 2})"));
  EXPECT_FALSE(EqualJson(R"({"a": 1})", R"({"a": "1"})"));
  EXPECT_FALSE(EqualJson("[1, 2]", "[2, 1]"));
  EXPECT_FALSE(EqualJson(R"({"a": 1})", R"({"a": 1, "b": null})"));
  EXPECT_FALSE(EqualJson("\"a\"", "\"a \""));
}

TEST(EqualJsonTest, LongIntegersAreExact) {
  EXPECT_TRUE(EqualJson("12345678901234567890123", "12345678901234567890123 "));
  EXPECT_FALSE(EqualJson("12345678901234567890123", "12345678901234567890124"));
  EXPECT_FALSE(EqualJson("9007199254740993", "9007199254740992"));
  EXPECT_FALSE(EqualJson("9007199254740993", "9007199254740992.0"));
  EXPECT_FALSE(EqualJson("-9007199254740993", "-9007199254740992.0"));
  EXPECT_TRUE(EqualJson("-9007199254740993", "-9007199254740993"));
  EXPECT_TRUE(EqualJson("9007199254740992", "9007199254740992.0"));
  EXPECT_FALSE(
      EqualJson("12345678901234567890123", "\"12345678901234567890123\""));
}

TEST(EqualJsonTest, WhatIsNoJsonIsUnknown) {
  EXPECT_FALSE(EqualJson(R"({"a": )", R"({"a": )"));
  EXPECT_FALSE(EqualJson("", ""));
  EXPECT_FALSE(EqualJson("1 2", "1 2"));
  EXPECT_FALSE(EqualJson(R"({"a": 1, "a": 2})", R"({"a": 2})"));
  EXPECT_FALSE(EqualJson("1e999", "1e999"));
  const std::string deep = std::string(300, '[') + std::string(300, ']');
  EXPECT_FALSE(EqualJson(deep, deep));
  EXPECT_FALSE(EqualJson("\"\xFF\"", "\"\xFF\""));
}

}  // namespace
}  // namespace holdfast::align
