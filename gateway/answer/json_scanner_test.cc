#include "gateway/answer/json_scanner.h"

#include <random>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace holdfast::answer {
namespace {

TEST(JsonScannerTest, Values) {
  for (const char* good :
       {"{}", "[]", " [ ] ", "0", "-0.5e+10", "1E5", "\"\"", "true", "false",
        "null", "{\"a\":{\"b\":[1,2,{}]},\"c\":\"\\u00e9\\n\\\\\\\"\"}"}) {
    std::string trimmed = good;
    while (trimmed.ends_with(' ')) trimmed.pop_back();
    EXPECT_TRUE(IsJsonValue(trimmed)) << good;
  }
  for (const char* bad :
       {"",        " ",        "{",           "[1,]",  "{,}",
        "{\"a\"}", "{\"a\":}", "{1:2}",       "01",    "-",
        "1.",      "1e",       "+1",          "tru",   "truex",
        "\"\n\"",  "\"\\x\"",  "\"\\u12g4\"", "[1 2]", "{\"a\":1]",
        "'a'",     "{}x",      "1x",          "nul",   "}"}) {
    EXPECT_FALSE(IsJsonValue(bad)) << bad;
  }
}

TEST(JsonScannerTest, DepthIsBounded) {
  EXPECT_TRUE(IsJsonValue(std::string(64, '[') + std::string(64, ']')));
  EXPECT_FALSE(IsJsonValue(std::string(65, '[') + std::string(65, ']')));
}

TEST(JsonScannerTest, AgreesWithAParser) {
  constexpr char kBytes[] = "{}[]\":,\\ \n01-+.eEtrufalsnx";
  std::mt19937 random(3);
  int good = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string text;
    const auto bytes = 1 + random() % 7;
    for (std::uint32_t i = 0; i < bytes; ++i) {
      text += kBytes[random() % (sizeof kBytes - 1)];
    }
    if (text.find_last_not_of(" \n") + 1 != text.size()) continue;
    const bool expected = nlohmann::json::accept(text);
    EXPECT_EQ(IsJsonValue(text), expected) << text;
    good += expected;
  }
  EXPECT_GT(good, 1000);
}

}  // namespace
}  // namespace holdfast::answer
