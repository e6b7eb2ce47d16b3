#include "gateway/answer/tools.h"

#include <string>

#include "gtest/gtest.h"

namespace holdfast::answer {
namespace {

Types TypesOf(const std::string& schema) {
  const Tools tools(Json::parse(
      R"([{"type":"function","function":{"name":"other"}},
          {"type":"function","function":{"name":"f","parameters":{
            "$defs":{"N":{"type":"integer"},"L":{"$ref":"#/$defs/L"},
                     "E":{"enum":["a",1]}},
            "properties":{"p":)" +
      schema + "}}}}]"));
  return tools.TypesOf("f", "p");
}

TEST(ToolsTest, TypesOfSchemas) {
  EXPECT_EQ(TypesOf(R"({"type":"string"})"), kString);
  EXPECT_EQ(TypesOf(R"({"type":["integer","null"]})"), kNumber | kNull);
  EXPECT_EQ(TypesOf(R"({"type":"string","nullable":true})"), kString | kNull);
  EXPECT_EQ(TypesOf(R"({"anyOf":[{"type":"boolean"},{"type":"array"}]})"),
            kBoolean | kArray);
  EXPECT_EQ(TypesOf(R"({"enum":["a","b"]})"), kString);
  EXPECT_EQ(TypesOf(R"({"const":7})"), kNumber);
  EXPECT_EQ(TypesOf(R"({"allOf":[{"$ref":"#/$defs/N"}]})"), kNumber);
  EXPECT_EQ(TypesOf(R"({"$ref":"#/$defs/E"})"), kString | kNumber);
  EXPECT_EQ(TypesOf(R"({"description":"anything"})"), kAnyType);
}

TEST(ToolsTest, OddSchemasAllowAnything) {
  for (const char* schema :
       {R"({"type":"any"})", R"({"type":7})", R"({"type":[]})",
        R"({"$ref":"#/$defs/L"})", R"({"$ref":"#/nowhere"})",
        R"({"$ref":"http://x/y"})", R"({"$ref":"#bad~pointer"})",
        R"({"$ref":7})", R"({"anyOf":{}})", R"({"enum":[]})",
        R"({"type":"string","const":7})"}) {
    EXPECT_EQ(TypesOf(schema), kAnyType) << schema;
  }
}

TEST(ToolsTest, WhatNoToolHasIsAString) {
  const Tools tools(Json::parse(R"([{"function":{"name":"f","parameters":{
      "properties":{"p":{"type":"integer"},"t":true}}}},
      {"function":{"name":"m","parameters":{
        "additionalProperties":{"type":"boolean"}}}},
      {"function":{"name":"odd","parameters":7}}, {"function":7}, 7])"));
  EXPECT_EQ(tools.TypesOf("f", "p"), kNumber);
  EXPECT_EQ(tools.TypesOf("f", "t"), kString);
  EXPECT_EQ(tools.TypesOf("f", "q"), kString);
  EXPECT_EQ(tools.TypesOf("g", "p"), kString);
  EXPECT_EQ(tools.TypesOf("m", "q"), kBoolean);
  EXPECT_EQ(tools.TypesOf("odd", "q"), kString);
}

TEST(ToolsTest, TextToJson) {
  EXPECT_EQ(ToJson("7", kNumber), "7");
  EXPECT_EQ(ToJson(" 7.0\n", kNumber | kNull), "7.0");
  EXPECT_EQ(ToJson("12345678901234567890123", kNumber),
            "12345678901234567890123");
  EXPECT_EQ(ToJson("True", kBoolean), "true");
  EXPECT_EQ(ToJson("None", kString | kNull), "null");
  EXPECT_EQ(ToJson("null", kString), "\"null\"");
  EXPECT_EQ(ToJson("[1, {\"a\": 2}]", kArray), "[1, {\"a\": 2}]");
  EXPECT_EQ(ToJson("[1, {\"a\": 2}]", kObject), "\"[1, {\\\"a\\\": 2}]\"");
  EXPECT_EQ(ToJson("\"q\"", kAnyType), "\"\\\"q\\\"\"");
  EXPECT_EQ(ToJson("", kAnyType), "\"\"");
  EXPECT_EQ(ToJson(" seven\n", kNumber), "\" seven\\n\"");
  EXPECT_EQ(EscapeJson("a\"\\\n\x01\xC3\xA9"), "a\\\"\\\\\\n\\u0001\xC3\xA9");
}

}  // namespace
}  // namespace holdfast::answer
