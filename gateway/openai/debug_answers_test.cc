#include "gateway/openai/debug_answers.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::openai {
namespace {

using ::testing::HasSubstr;

ChatRequest LastMessage(const std::string& text) {
  ChatRequest request;
  request.messages = {Json{{"role", "user"}, {"content", "first"}},
                      Json{{"role", "tool"}, {"content", text}}};
  return request;
}

std::string TextFor(const DebugAnswers& answers, const std::string& text) {
  const auto force = answers.Find(LastMessage(text));
  EXPECT_TRUE(force.ok()) << force.status();
  return !force.ok() ? "error" : *force == nullptr ? "none" : (*force)->text;
}

TEST(DebugAnswersTest, TheFirstMatchOnTheLastMessageWins) {
  const auto answers = DebugAnswers::Parse(
      "{\"pattern\":\"^ab+$\",\"answer\":\"one\"}\r\n"
      "\n"
      "{\"pattern\":\"b\",\"answer\":{\"text\":\"two\"}}\n"
      "{\"pattern\":\"(?i)\\\\p{Lu}ber\",\"answer\":\"three\"}",
      "file");
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ(TextFor(**answers, "abb"), "one");
  EXPECT_EQ(TextFor(**answers, "xabb"), "two");
  EXPECT_EQ(TextFor(**answers, "first"), "none");
  EXPECT_EQ(TextFor(**answers, ""), "none");
  EXPECT_EQ(TextFor(**answers, "Über"), "two");
  const ChatRequest empty;
  EXPECT_EQ(*(*answers)->Find(empty), nullptr);
}

TEST(DebugAnswersTest, EveryConditionOfALineMustHold) {
  const auto answers = DebugAnswers::Parse(
      R"({"first":"^title","answer":"a title"})"
      "\n"
      R"({"user":"parser","step":0,"answer":"look"})"
      "\n"
      R"({"user":"parser","step":1,"pattern":"^no","answer":"look again"})"
      "\n"
      R"({"step":1,"answer":"found"})",
      "file");
  ASSERT_TRUE(answers.ok()) << answers.status();
  ChatRequest request;
  const auto add = [&](const char* role, const char* text) {
    request.messages.push_back(Json{{"role", role}, {"content", text}});
  };
  const auto text = [&]() -> std::string {
    const auto force = (*answers)->Find(request);
    if (!force.ok()) return "error";
    return *force == nullptr ? "none" : (*force)->text;
  };
  add("system", "title");
  EXPECT_EQ(text(), "a title");  // no user has spoken
  request.messages[0]["content"] = "agent";
  EXPECT_EQ(text(), "none");
  add("user", "the parser?");
  EXPECT_EQ(text(), "look");
  add("assistant", "");
  add("tool", "nothing");
  EXPECT_EQ(text(), "look again");
  add("tool", "parser.cc");
  EXPECT_EQ(text(), "found");
  add("assistant", "");
  add("tool", "nothing");
  EXPECT_EQ(text(), "none");
  add("user", "parser");
  EXPECT_EQ(text(), "look");  // counted from the last user message
}

TEST(DebugAnswersTest, AnswersOfEveryKind) {
  const auto answers = DebugAnswers::Parse(
      R"({"pattern":"a","answer":{"tool_calls":[{"name":"f","arguments":{"x":1}}]}})"
      "\n"
      R"({"pattern":"b","answer":{"ids":[1,2]}})",
      "file");
  ASSERT_TRUE(answers.ok()) << answers.status();
  const auto call = (*answers)->Find(LastMessage("a"));
  ASSERT_TRUE(call.ok());
  EXPECT_EQ((*call)->tool_calls[0]["name"], "f");
  const auto ids = (*answers)->Find(LastMessage("b"));
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ((*ids)->ids, (std::vector<std::uint32_t>{1, 2}));
}

TEST(DebugAnswersTest, BadLinesNameFileAndLine) {
  for (const char* line :
       {"{", "7", "[]", "{}", R"({"pattern":"a"})", R"({"answer":"a"})",
        R"({"pattern":7,"answer":"a"})", R"({"pattern":"(","answer":"a"})",
        R"({"pattern":"a","answer":7})", R"({"user":"(","answer":"a"})",
        R"({"first":1,"answer":"a"})", R"({"step":-1,"answer":"a"})",
        R"({"step":"1","answer":"a"})",
        R"({"pattern":"a","answer":"b","more":1})"}) {
    const auto answers = DebugAnswers::Parse(
        std::string("{\"pattern\":\"a\",\"answer\":\"b\"}\n\n") + line, "x.jl");
    ASSERT_FALSE(answers.ok()) << line;
    EXPECT_TRUE(absl::IsInvalidArgument(answers.status()));
    EXPECT_THAT(std::string(answers.status().message()), HasSubstr("x.jl:3:"));
  }
}

TEST(DebugAnswersTest, APatternThatNeverEndsIsAnError) {
  const auto answers =
      DebugAnswers::Parse(R"({"pattern":"^(a|aa)+$","answer":"x"})", "file");
  ASSERT_TRUE(answers.ok()) << answers.status();
  const auto found = (*answers)->Find(LastMessage(std::string(64, 'a') + "c"));
  EXPECT_TRUE(absl::IsResourceExhausted(found.status())) << found.status();
}

TEST(DebugAnswersTest, LoadsAFileAndNamesAMissingOne) {
  const std::string path = ::testing::TempDir() + "/debug_answers_test.jsonl";
  std::ofstream(path) << "{\"pattern\":\"a\",\"answer\":\"b\"}\n";
  const auto answers = DebugAnswers::Load(path);
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ(TextFor(**answers, "a"), "b");
  std::filesystem::remove(path);
  const auto missing = DebugAnswers::Load(path);
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(path));
  EXPECT_FALSE(DebugAnswers::Load(::testing::TempDir()).ok());
}

}  // namespace
}  // namespace holdfast::openai
