#include "gateway/openai/json.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::openai {
namespace {

using ::testing::HasSubstr;

ApiError ErrorOf(std::string_view text) {
  const ApiOr<Json> parsed = ParseJson(text);
  EXPECT_FALSE(parsed.ok()) << text;
  return parsed.ok() ? ApiError{} : parsed.error();
}

TEST(JsonTest, KeepsValuesAndTheOrderOfKeys) {
  const std::string text =
      R"({"z":1,"a":[true,null,-2,1.5,"é\n"],"m":{"y":{},"b":[]}})";
  const ApiOr<Json> parsed = ParseJson(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(Dump(*parsed), text);
}

TEST(JsonTest, ScalarsAtTheTop) {
  EXPECT_EQ(*ParseJson("17"), 17);
  EXPECT_EQ(*ParseJson("\"x\""), "x");
  EXPECT_EQ(*ParseJson(" [ ] "), Json::array());
}

TEST(JsonTest, TheLastOfDoubleKeysCounts) {
  const ApiOr<Json> parsed =
      ParseJson(R"({"a":1,"b":2,"a":{"c":3,"c":4},"b":5,"d":6})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(Dump(*parsed), R"({"a":{"c":4},"b":5,"d":6})");
}

TEST(JsonTest, ManyKeysCostNoSquare) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += "\"" + std::to_string(i) + "\":0,";
  text += "\"0\":1}";
  const ApiOr<Json> parsed = ParseJson(text);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->size(), 300'000);
  EXPECT_EQ((*parsed)["0"], 1);
}

TEST(JsonTest, DepthIsBounded) {
  const auto nested = [](int depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(ParseJson(nested(64)).ok());
  EXPECT_THAT(ErrorOf(nested(65)).message, HasSubstr("64 levels"));
  EXPECT_THAT(ErrorOf(std::string(1'000'000, '[')).message,
              HasSubstr("64 levels"));
  std::string objects;
  for (int i = 0; i < 100; ++i) objects += "{\"a\":";
  EXPECT_THAT(ErrorOf(objects).message, HasSubstr("64 levels"));
}

TEST(JsonTest, InvalidUtf8IsNamedWithItsField) {
  const ApiError error =
      ErrorOf("{\"messages\":[{},{\"role\":\"user\",\"content\":\"a\xff\"}]}");
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.param, "messages[1].content");
  EXPECT_THAT(error.message, HasSubstr("invalid UTF-8 at byte"));
  // Overlong, surrogate, past the end of Unicode, cut off.
  for (const char* bytes :
       {"\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    EXPECT_THAT(ErrorOf(std::string("[\"") + bytes + "\"]").message,
                HasSubstr("invalid UTF-8"));
  }
}

TEST(JsonTest, HalfASurrogatePairIsNamed) {
  const ApiError error = ErrorOf(R"({"user":"ok","stop":["\ud83d"]})");
  EXPECT_EQ(error.param, "stop[0]");
  EXPECT_THAT(error.message, HasSubstr("half a surrogate pair"));
  EXPECT_EQ(*ParseJson(R"("\ud83d\ude00")"), "\xF0\x9F\x98\x80");
}

TEST(JsonTest, PathsFollowTheValueBeingRead) {
  EXPECT_EQ(ErrorOf(R"({"a":{"b":[[1],[2,{"c":)").param, "a.b[1][1].c");
  EXPECT_EQ(ErrorOf(R"({"a":{"b":1},})").param, "");
  EXPECT_EQ(ErrorOf("").param, "");
}

TEST(JsonTest, BrokenTextIsAnError) {
  for (const char* text :
       {"", " ", "{", "}", "[1,]", "{\"a\"}", "{\"a\":1 \"b\":2}", "nul", "01",
        "1 2", "\"\x01\"", "'a'", "{a:1}", "NaN", "1e999", "\"\\x\"",
        "// c\n1"}) {
    const ApiError error = ErrorOf(text);
    EXPECT_EQ(error.http_status, 400) << text;
    EXPECT_EQ(error.code, "invalid_json") << text;
  }
}

TEST(JsonTest, DumpReplacesInvalidUtf8) {
  EXPECT_EQ(Dump(Json("a\xff")), "\"a\xEF\xBF\xBD\"");
}

TEST(JsonTest, DumpLikePythonSeparatesAsJsonDumpsDoes) {
  EXPECT_EQ(DumpLikePython(*ParseJson(
                R"({"a":[1,2.0,{"b":"é\"\u0001"}],"c":{},"d":[],"e":null})")),
            R"({"a": [1, 2.0, {"b": "é\"\u0001"}], "c": {}, "d": [], )"
            R"("e": null})");
}

}  // namespace
}  // namespace holdfast::openai
