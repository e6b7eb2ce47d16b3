#include "gateway/openai/align_prompt.h"

#include <memory>
#include <string>
#include <vector>

#include "gateway/openai/json.h"
#include "gateway/openai/testing/prompt_model.h"
#include "gateway/template/testing/qwen_templates.h"
#include "gateway/template/testing/templates.h"
#include "gtest/gtest.h"

namespace holdfast::openai {
namespace {

using testing::Model;
using Ids = std::vector<std::uint32_t>;

constexpr char kTools[] =
    R"([{"type":"function","function":{"name":"find","parameters":
        {"type":"object","properties":{"path":{"type":"string"},
                                       "depth":{"type":"integer"}}}}}])";
constexpr char kArguments[] = R"({"path": "src", "depth": 2})";

// A conversation whose first answer was served and recorded.
class AlignPromptTest : public ::testing::Test {
 protected:
  // What the model wrote behind the generation prompt, and what was sent of it.
  // A blank line is two tokens, where the tokenizer makes one.
  void Answer(const std::string& text, align::Turn turn,
              const std::string& more = "{}") {
    first_ = Json::parse(more);
    first_["tools"] = Json::parse(kTools);
    first_["messages"] = Json::parse(R"([{"role":"user","content":"Where?"}])");
    const BuiltPrompt prompt = Build(first_);
    ASSERT_GT(prompt.answer_begin, 0u);
    align::Record record;
    record.ids = prompt.ids;
    const auto encoded = model_->tokenizer().Encode(text, {});
    ASSERT_TRUE(encoded.ok());
    for (const std::uint32_t id : *encoded) {
      if (id == 256) {
        record.ids.insert(record.ids.end(), {'\n', '\n'});
      } else {
        record.ids.push_back(id);
      }
    }
    record.end = record.ids.size();
    turn.begin = prompt.answer_begin;
    turn.opening_end = prompt.ids.size();
    turn.end = record.ids.size();
    if (turn.reasoning_end > 0) turn.reasoning_end += prompt.ids.size();
    record.ids.push_back(model_->Id("<|im_end|>"));
    record.turns.push_back(std::move(turn));
    record_ = std::make_shared<align::Record>(std::move(record));
  }

  BuiltPrompt Build(const Json& body) {
    body_ = body;
    ApiOr<ChatRequest> request = ParseChatRequest(body, {"tiny", 1000, true});
    EXPECT_TRUE(request.ok()) << request.error().message;
    request_ = *std::move(request);
    ApiOr<BuiltPrompt> prompt = BuildPrompt(request_, model_->parts());
    EXPECT_TRUE(prompt.ok()) << prompt.error().message;
    return *std::move(prompt);
  }

  // The rules by which the next turn resumes behind the answer, or "as sent".
  std::string Next(const std::string& answer,
                   const std::string& next = R"({"role":"tool",
                       "content":"src/a"})",
                   const AlignOptions& options = {}) {
    Json body = first_;
    body["messages"].push_back(Json::parse(answer));
    body["messages"].push_back(Json::parse(next));
    const BuiltPrompt prompt = Build(body);
    const std::vector<std::shared_ptr<const align::Record>> records = {record_};
    const auto aligned =
        AlignPrompt(request_, body_, prompt, model_->parts(), records, options);
    if (!aligned) return "nothing";
    matched_ = aligned->matched;
    if (!aligned->at_end) {
      EXPECT_EQ(aligned->ids, prompt.ids);
      return "as sent";
    }
    const Ids& record = record_->ids;
    EXPECT_TRUE(std::equal(record.begin(), record.end(), aligned->ids.begin()));
    // Behind the answer it is the client's prompt.
    const std::string tail = model_->Text(
        {aligned->ids.begin() + record.size(), aligned->ids.end()});
    EXPECT_TRUE(model_->Text(prompt.ids).ends_with(tail));
    std::string names;
    for (const align::Rule rule : aligned->rules) {
      names += (names.empty() ? "" : " ") + std::string(align::RuleName(rule));
    }
    return names;
  }

  void Use(const char* chat_template) {
    model_ = std::make_unique<Model>(chat_template);
  }

  std::unique_ptr<Model> model_;
  Json first_;
  Json body_;
  ChatRequest request_;
  std::shared_ptr<const align::Record> record_;
  std::size_t matched_ = 0;
};

align::Turn CallTurn() {
  return {.reasoning_end = 1,
          .reasoning = {"Look.", {}},
          .content = {"I look.", {}},
          .calls = {{"find", kArguments}},
          .hidden = {}};
}
constexpr char kXmlAnswer[] =
    "Look.\n</think>\n\nI look.\n\n<tool_call>\n<function=find>\n"
    "<parameter=path>\nsrc\n</parameter>\n<parameter=depth>\n2\n</parameter>\n"
    "</function>\n</tool_call>";
constexpr char kCalls[] =
    R"("tool_calls":[{"id":"c","type":"function","function":{"name":"find",
        "arguments":"{\"path\": \"src\", \"depth\": 2}"}}])";

std::string Assistant(const std::string& fields) {
  return R"({"role":"assistant",)" + fields + "}";
}

TEST_F(AlignPromptTest, ACopyWithoutReasoningWhereTheTemplateShowsIt) {
  Use(templates::testing::kXmlCalls);
  Answer(kXmlAnswer, CallTurn());
  const std::string kept =
      Assistant(R"("content":"I look.","reasoning_content":"Look.",)" +
                std::string(kCalls));
  EXPECT_EQ(Next(kept), "tokens");
  const std::string dropped =
      Assistant(R"("content":"I look.",)" + std::string(kCalls));
  EXPECT_EQ(Next(dropped), "reasoning");
  EXPECT_EQ(Next(dropped, R"({"role":"tool","content":"x"})",
                 {.without_reasoning = false, .random = 1}),
            "as sent");
  EXPECT_EQ(Next(kept, R"({"role":"tool","content":"x"})",
                 {.without_reasoning = false, .random = 1}),
            "tokens");
}

TEST_F(AlignPromptTest, WhatTheTemplateTakesOutStaysOut) {
  Use(templates::testing::kXmlCalls);
  Answer(kXmlAnswer, CallTurn());
  const std::string user = R"({"role":"user","content":"And?"})";
  for (const char* reasoning : {R"("reasoning_content":"Look.",)", ""}) {
    const std::string answer =
        Assistant(R"("content":"I look.",)" + std::string(reasoning) + kCalls);
    EXPECT_EQ(Next(answer, user), "as sent");
    // Up to the answer's header and its line break.
    EXPECT_EQ(matched_, record_->turns[0].begin + 1);
  }
}

TEST_F(AlignPromptTest, CallsWrittenAgain) {
  Use(templates::testing::kXmlCalls);
  Answer(kXmlAnswer, CallTurn());
  const auto with = [&](const std::string& arguments) {
    return Next(Assistant(
        R"("content":"I look.","reasoning_content":"Look.","tool_calls":[
           {"id":"c","type":"function","function":{"name":"find",
            "arguments":)" +
        arguments + "}}]"));
  };
  EXPECT_EQ(with(R"("{\"depth\":2,\"path\":\"src\"}")"), "tool_calls");
  EXPECT_EQ(with(R"({"depth":2,"path":"src"})"), "tool_calls");
  EXPECT_EQ(with(R"("{\"depth\":3,\"path\":\"src\"}")"), "as sent");
}

TEST_F(AlignPromptTest, AnEditedAnswerIsServedAsSent) {
  Use(templates::testing::kXmlCalls);
  Answer(kXmlAnswer, CallTurn());
  EXPECT_EQ(Next(Assistant(R"("content":"I looked.",)" + std::string(kCalls))),
            "as sent");
  EXPECT_EQ(Next(Assistant(R"("content":"I look.")")), "as sent");
  // Text that looks like the think block is no reasoning.
  EXPECT_EQ(
      Next(Assistant(R"("content":"<think>\nLook.\n</think>\n\nI look.",)" +
                     std::string(kCalls))),
      "as sent");
}

TEST_F(AlignPromptTest, ThinkBlockOfThePromptAlone) {
  // The generation prompt has an empty think block; earlier answers have none.
  Use(templates::testing::kJsonCalls);
  align::Turn turn{.content = {"There.\n\nSee?", {}}};
  Answer("There.\n\nSee?", turn,
         R"({"chat_template_kwargs":{"enable_thinking":false}})");
  const std::string answer = Assistant(R"("content":"There.\n\nSee?")");
  EXPECT_EQ(Next(answer, R"({"role":"user","content":"And?"})"), "as sent");
  // With thinking on there is nothing to take out.
  Answer("There.\n\nSee?", turn, "{}");
  EXPECT_EQ(Next(answer, R"({"role":"user","content":"And?"})"), "tokens");
}

TEST_F(AlignPromptTest, ReasoningThatTheTemplatePrintsOnlyWhereThereIsSome) {
  Use(templates::testing::kJsonCalls);
  Answer(
      "<think>\nLook.\n</think>\n\nI look.\n<tool_call>\n{\"name\": "
      "\"find\", \"arguments\": {\"path\": \"src\", \"depth\": 2}}\n"
      "</tool_call>",
      CallTurn());
  EXPECT_EQ(Next(Assistant(R"("content":"I look.",)" + std::string(kCalls))),
            "reasoning");
  EXPECT_EQ(Next(Assistant(R"("content":"I look.\n",)" + std::string(kCalls))),
            "reasoning newline");
}

TEST_F(AlignPromptTest, ATemplateThatPrintsNoReasoning) {
  Use(templates::testing::kChatMl);
  align::Turn turn{.reasoning_end = 1,
                   .reasoning = {"Look.", {}},
                   .content = {"There.", {}}};
  Answer("<think>Look.</think>There.", turn);
  EXPECT_EQ(Next(Assistant(R"("content":"There.")"),
                 R"({"role":"user","content":"And?"})"),
            "as sent");
}

TEST_F(AlignPromptTest, WithoutRecordsOrMarksThereIsNothing) {
  Use(templates::testing::kXmlCalls);
  Answer(kXmlAnswer, CallTurn());
  const BuiltPrompt prompt = Build(first_);
  EXPECT_FALSE(AlignPrompt(request_, body_, prompt, model_->parts(), {}, {})
                   .has_value());
  const templates::MessageMarks none;
  PromptParts parts = model_->parts();
  parts.marks = &none;
  const std::vector<std::shared_ptr<const align::Record>> records = {record_};
  EXPECT_FALSE(
      AlignPrompt(request_, body_, prompt, parts, records, {}).has_value());
}

}  // namespace
}  // namespace holdfast::openai
