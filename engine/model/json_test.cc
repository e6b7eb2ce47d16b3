#include "engine/model/json.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::model {
namespace {

using ::testing::HasSubstr;

JsonDocument MustParse(std::string_view text) {
  auto document = JsonDocument::Parse(text, "x.json");
  EXPECT_TRUE(document.ok()) << document.status().message();
  return std::move(document).value();
}

std::string ErrorOf(std::string_view text) {
  const auto document = JsonDocument::Parse(text, "x.json");
  return document.ok() ? "" : document.status().message();
}

TEST(JsonTest, ReadsEveryKind) {
  const JsonDocument document = MustParse(
      R"( {"a": [1, -2.5e3, true, false, null, "t"], "b": {}, "c": []} )");
  const JsonValue root = document.root();
  ASSERT_TRUE(root.is_object());
  EXPECT_EQ(root.size(), 3u);
  const JsonValue a = *root.Find("a");
  ASSERT_TRUE(a.is_array());
  ASSERT_EQ(a.size(), 6u);
  auto at = a.elements().begin();
  EXPECT_EQ((*at).integer(), 1);
  EXPECT_EQ((*at).number(), 1.0);
  ++at;
  EXPECT_EQ((*at).integer(), std::nullopt);
  EXPECT_EQ((*at).number(), -2500.0);
  ++at;
  EXPECT_TRUE((*at).is_bool() && (*at).boolean());
  ++at;
  EXPECT_TRUE((*at).is_bool() && !(*at).boolean());
  ++at;
  EXPECT_TRUE((*at).is_null());
  ++at;
  EXPECT_EQ((*at).string(), "t");
  ++at;
  EXPECT_TRUE(at == a.elements().end());
  EXPECT_EQ(root.Find("b")->size(), 0u);
  EXPECT_EQ(root.Find("c")->size(), 0u);
  EXPECT_FALSE(root.Find("d").has_value());
  const JsonDocument null = MustParse(R"({"n": null, "s": 0})");
  EXPECT_TRUE(null.root().Find("n").has_value());
  EXPECT_FALSE(null.root().FindSet("n").has_value());
  EXPECT_TRUE(null.root().FindSet("s").has_value());
}

TEST(JsonTest, WalksMembersOverNestedValues) {
  const JsonDocument document =
      MustParse(R"({"x": {"in": [[1], {"y": 2}]}, "z": 3})");
  std::string names;
  for (auto [name, value] : document.root().members()) names += name;
  EXPECT_EQ(names, "xz");
  EXPECT_EQ(document.root().Find("z")->integer(), 3);
}

TEST(JsonTest, KeepsIntegersExact) {
  const JsonDocument document = MustParse(
      "[9007199254740993, -9223372036854775808, 9223372036854775808]");
  auto at = document.root().elements().begin();
  EXPECT_EQ((*at).integer(), 9007199254740993);
  ++at;
  EXPECT_EQ((*at).integer(), INT64_MIN);
  ++at;
  EXPECT_EQ((*at).integer(), std::nullopt);
  EXPECT_EQ((*at).number(), 9223372036854775808.0);
}

TEST(JsonTest, UnescapesStrings) {
  EXPECT_EQ(MustParse(R"("a\"\\\/\b\f\n\r\tz")").root().string(),
            "a\"\\/\b\f\n\r\tz");
  EXPECT_EQ(MustParse(R"("\u0041\u00e9\u20AC\ud83d\ude00")").root().string(),
            "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(MustParse(R"("\u0000")").root().string(), std::string(1, '\0'));
  EXPECT_EQ(MustParse("\"\xc3\xa9\xff\"").root().string(), "\xc3\xa9\xff");
}

TEST(JsonTest, RefusesWhatIsNotJson) {
  const struct {
    const char* text;
    const char* error;
  } cases[] = {
      {"", "found the end"},
      {"nul", "expected a value"},
      {"NaN", "expected a value"},
      {"-", "expected a value"},
      {"1.", "digit after the point"},
      {"1e", "exponent"},
      {"1e999", "out of range"},
      {"01", "text after the value"},
      {"+1", "expected a value"},
      {"[1,]", "expected a value"},
      {"[1 2]", "expected ','"},
      {"[1", "expected ','"},
      {"{\"a\" 1}", "expected ':'"},
      {"{a: 1}", "name in quotes"},
      {"{\"a\": 1,}", "name in quotes"},
      {"{\"a\": 1, \"b\": 2, \"a\": 3}", "occurs twice"},
      {"{} {}", "text after the value"},
      {"\"a", "without an end"},
      {"\"a\\", "without an end"},
      {"\"\\x\"", "unknown escape"},
      {"\"\\u12\"", "without an end"},
      {"\"\\u12g4\"", "hexadecimal"},
      {"\"\\ud800\"", "lone surrogate"},
      {"\"\\ud800\\u0041\"", "lone surrogate"},
      {"\"\\udc00\"", "lone surrogate"},
      {"\"a\nb\"", "control character"},
      {"/* */ 1", "expected a value"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ErrorOf(c.text), HasSubstr(c.error)) << c.text;
    EXPECT_THAT(ErrorOf(c.text), HasSubstr("x.json")) << c.text;
  }
}

TEST(JsonTest, BoundsNesting) {
  const auto nested = [](int depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(ErrorOf(nested(JsonDocument::kMaxDepth)), "");
  EXPECT_THAT(ErrorOf(nested(JsonDocument::kMaxDepth + 1)),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(ErrorOf(std::string(1'000'000, '[')),
              HasSubstr("nested too deeply"));
}

TEST(JsonTest, SurvivesAMove) {
  JsonDocument first = MustParse(R"({"name": "v\u0061lue"})");
  const JsonDocument second = std::move(first);
  EXPECT_EQ(second.root().Find("name")->string(), "value");
}

}  // namespace
}  // namespace holdfast::model
