#include "gateway/template/chat_template.h"

#include <string>
#include <thread>
#include <vector>

#include "gateway/template/testing/templates.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::templates {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

Json Message(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

SpecialTokens Tokens() {
  SpecialTokens tokens;
  tokens.bos = "<s>";
  tokens.eos = "</s>";
  return tokens;
}

std::string RenderOrDie(const std::string& source, const RenderInput& input) {
  auto compiled = ChatTemplate::Create(source, Tokens());
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return "";
  auto text = (*compiled)->Render(input);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : "";
}

absl::Status RenderError(const std::string& source,
                         const RenderInput& input = {}) {
  auto compiled = ChatTemplate::Create(source, Tokens());
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return compiled.status();
  return (*compiled)->Render(input).status();
}

RenderInput Talk() {
  RenderInput input;
  input.messages = {Message("system", "Be brief."), Message("user", "Hi"),
                    Message("assistant", "Yes?"), Message("user", "1 < 2 & 3")};
  return input;
}

TEST(ChatTemplateTest, RendersChatMl) {
  EXPECT_EQ(RenderOrDie(testing::kChatMl, Talk()),
            "<|im_start|>system\nBe brief.<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nYes?<|im_end|>\n"
            "<|im_start|>user\n1 < 2 & 3<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChatTemplateTest, LeavesOutTheGenerationPrompt) {
  RenderInput input;
  input.messages = {Message("system", "S")};
  input.add_generation_prompt = false;
  EXPECT_EQ(RenderOrDie(testing::kChatMl, input),
            "<|im_start|>system\nS<|im_end|>\n");
}

TEST(ChatTemplateTest, TrimsBlocksAndStripsTheirIndentation) {
  EXPECT_EQ(RenderOrDie("a\n   {% if true %}\nb\n   {% endif %}\nc", {}),
            "a\nb\nc");
}

TEST(ChatTemplateTest, ToJsonIsPythonsAndKeepsKeyOrder) {
  RenderInput input;
  input.tools = Json::parse(
      R"([{"z":1,"a":[1.0,true,null,"<b>&'é\n"],"m":{"y":-2,"b":1e20}}])");
  EXPECT_EQ(RenderOrDie("{{ tools[0] | tojson }}", input),
            R"({"z": 1, "a": [1.0, true, null, "<b>&'é\n"], )"
            R"("m": {"y": -2, "b": 1e+20}})");
  EXPECT_EQ(
      RenderOrDie("{{ tools[0].m | tojson(sort_keys=true, indent=1) }}", input),
      "{\n \"b\": 1e+20,\n \"y\": -2\n}");
  EXPECT_EQ(
      RenderOrDie("{{ tools[0].m | tojson(separators=(',', ':')) }}", input),
      R"({"y":-2,"b":1e+20})");
  EXPECT_EQ(
      RenderOrDie("{{ tools[0].a[3] | tojson(ensure_ascii=true) }}", input),
      R"("<b>&'\u00e9\n")");
}

TEST(ChatTemplateTest, AbsentToolsAndDocumentsAreNone) {
  EXPECT_EQ(RenderOrDie("{{ tools is none }} {{ documents is none }} "
                        "{{ other is defined }}",
                        {}),
            "True True False");
}

TEST(ChatTemplateTest, SpecialTokensAreTextAndAbsentOnesUndefined) {
  EXPECT_EQ(RenderOrDie("{{ bos_token }}|{{ eos_token }}|"
                        "{{ pad_token is defined }}",
                        {}),
            "<s>|</s>|False");
}

TEST(ChatTemplateTest, KwargsReachTheTemplate) {
  RenderInput input;
  input.kwargs = {{"enable_thinking", false}, {"bos_token", "B"}, {"self", 1}};
  EXPECT_EQ(RenderOrDie("{{ enable_thinking }} {{ bos_token }}", input),
            "False B");
}

TEST(ChatTemplateTest, KwargsCannotReplaceTheConversation) {
  for (const char* name :
       {"messages", "tools", "documents", "add_generation_prompt"}) {
    RenderInput input;
    input.kwargs = {{name, true}};
    const absl::Status status = RenderError("x", input);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
}

TEST(ChatTemplateTest, LoopControlsNamespaceAndGenerationBlocks) {
  RenderInput input;
  input.messages = {Message("a", "1"), Message("b", "2"), Message("c", "3"),
                    Message("d", "4")};
  EXPECT_EQ(RenderOrDie("{% set ns = namespace(n=0) %}"
                        "{% for m in messages %}"
                        "{% if m.role == 'b' %}{% continue %}{% endif %}"
                        "{% if m.role == 'd' %}{% break %}{% endif %}"
                        "{% set ns.n = ns.n + 1 %}"
                        "{% generation %}{{ m.content }}{% endgeneration %}"
                        "{% endfor %}={{ ns.n }}",
                        input),
            "13=2");
}

TEST(ChatTemplateTest, StrftimeNowGivesTheDate) {
  EXPECT_THAT(RenderOrDie("{{ strftime_now('%Y-%m-%d') }}", {}),
              MatchesRegex("20[0-9][0-9]-[01][0-9]-[0-3][0-9]"));
}

TEST(ChatTemplateTest, ThinkingTemplateWithToolsAndCalls) {
  RenderInput input;
  input.messages = Json::parse(R"([
    {"role":"user","content":"Weather?"},
    {"role":"assistant","content":"","reasoning_content":"Look.",
     "tool_calls":[{"id":"c","type":"function","function":{"name":"w",
       "arguments":{"city":"Zürich","n":1}}}]},
    {"role":"tool","content":"sun"},
    {"role":"tool","content":"wind"}])");
  input.tools = Json::parse(
      R"([{"type":"function","function":{"name":"w","parameters":{}}}])");
  EXPECT_EQ(RenderOrDie(testing::kThinkingChatMl, input),
            "<|im_start|>system\nTools:\n"
            "{\"type\": \"function\", \"function\": {\"name\": \"w\", "
            "\"parameters\": {}}}<|im_end|>\n"
            "<|im_start|>user\nWeather?<|im_end|>\n"
            "<|im_start|>assistant\n<think>\nLook.\n</think>\n\n\n"
            "<tool_call>\n{\"name\": \"w\", \"arguments\": "
            "{\"city\": \"Zürich\", \"n\": 1}}\n</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\nsun\n</tool_response>\n"
            "<tool_response>\nwind\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n<think>\n");
}

TEST(ChatTemplateTest, TextOfEveryKindPassesUnchanged) {
  const std::string text =
      std::string("a\0b", 3) + "\r\n\t\x7f\xEF\xB7\x90\xF0\x9F\x98\x80 {{ x }}";
  RenderInput input;
  input.messages = {Json{{"role", "user"}, {"content", text}}};
  EXPECT_EQ(RenderOrDie("{{ messages[0].content }}", input), text);
}

TEST(ChatTemplateTest, RaiseExceptionBecomesTheMessage) {
  const absl::Status status =
      RenderError("{{ raise_exception('roles must alternate') }}");
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("roles must alternate"));
}

TEST(ChatTemplateTest, BugsOfTheTemplateAreErrors) {
  EXPECT_THAT(std::string(RenderError("{{ 1 / 0 }}").message()),
              HasSubstr("ZeroDivisionError"));
  EXPECT_THAT(std::string(RenderError("{{ x.y.z }}").message()),
              HasSubstr("'x' is undefined"));
  EXPECT_THAT(std::string(RenderError("{{ undefined | tojson }}").message()),
              HasSubstr("TypeError"));
}

TEST(ChatTemplateTest, SyntaxErrorsNameTheLine) {
  const auto compiled = ChatTemplate::Create("a\n{% if %}\n", {});
  EXPECT_TRUE(absl::IsInvalidArgument(compiled.status()));
  EXPECT_THAT(std::string(compiled.status().message()), HasSubstr("line 2"));
}

TEST(ChatTemplateTest, EmptyAndBrokenSourcesAreErrors) {
  EXPECT_TRUE(absl::IsInvalidArgument(ChatTemplate::Create("", {}).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(ChatTemplate::Create("\xff", {}).status()));
}

TEST(ChatTemplateTest, TheSandboxHoldsAndNothingIsChanged) {
  EXPECT_THAT(
      std::string(RenderError("{{ ''.__class__.__mro__[1].__subclasses__() }}")
                      .message()),
      HasSubstr("unsafe"));
  RenderInput input = Talk();
  EXPECT_THAT(
      std::string(RenderError("{{ messages.append(1) }}", input).message()),
      HasSubstr("unsafe"));
  EXPECT_FALSE(RenderError("{% set ns = namespace(_x=1) %}").ok());
  EXPECT_FALSE(
      RenderError("{% set ns = namespace() %}{% set ns.__x = 1 %}").ok());
}

TEST(ChatTemplateTest, AFailedRenderLeavesTheNextOneAlone) {
  auto compiled = ChatTemplate::Create(
      "{% if messages %}{{ messages[0].content }}{% else %}"
      "{{ raise_exception('none') }}{% endif %}",
      {});
  ASSERT_TRUE(compiled.ok());
  EXPECT_FALSE((*compiled)->Render({}).ok());
  RenderInput input;
  input.messages = {Message("user", "fine")};
  const auto text = (*compiled)->Render(input);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "fine");
}

TEST(ChatTemplateTest, ManyThreadsRenderAndCompile) {
  auto compiled = ChatTemplate::Create(testing::kChatMl, Tokens());
  ASSERT_TRUE(compiled.ok());
  const auto expected = (*compiled)->Render(Talk());
  ASSERT_TRUE(expected.ok());
  std::vector<int> good(8);
  std::vector<std::thread> threads;
  for (int& count : good) {
    threads.emplace_back([&count, &compiled, &expected] {
      for (int i = 0; i < 20; ++i) {
        auto own = ChatTemplate::Create("{{ messages | length }}", {});
        if (!own.ok()) return;
        const auto length = (*own)->Render(Talk());
        const auto text = (*compiled)->Render(Talk());
        if (text.ok() && *text == *expected && length.ok() && *length == "4") {
          ++count;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : good) EXPECT_EQ(count, 20);
}

}  // namespace
}  // namespace holdfast::templates
