#include "gateway/template/message_marks.h"

#include <memory>
#include <string>
#include <vector>

#include "gateway/template/testing/byte_tokenizer.h"
#include "gateway/template/testing/templates.h"
#include "gateway/tokenizer/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::templates {
namespace {

using gateway::Tokenizer;
using ::testing::HasSubstr;

struct Model {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  MessageMarks marks;
};

Model MakeModel(const std::string& source,
                const std::vector<std::string>& added, const std::string& eos,
                const std::string& bos = "") {
  Model model;
  auto tokenizer = Tokenizer::Create(testing::ByteTokenizerSpec(added, eos));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  model.tokenizer = std::move(*tokenizer);
  SpecialTokens tokens;
  tokens.bos = bos;
  tokens.eos = eos;
  auto compiled = ChatTemplate::Create(source, tokens);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  model.chat_template = std::move(*compiled);
  model.marks = MessageMarks::Learn(*model.chat_template, *model.tokenizer);
  return model;
}

const std::vector<std::string> kChatMlTokens = {
    "<|im_start|>", "<|im_end|>",   "<think>",         "</think>",
    "<tool_call>",  "</tool_call>", "<tool_response>", "</tool_response>"};

struct Found {
  std::string text;  // from the mark to the next newline
  Role role;
  bool operator==(const Found&) const = default;
};
void PrintTo(const Found& found, std::ostream* os) {
  *os << found.text << "/" << static_cast<int>(found.role);
}

std::vector<Found> FindIn(const Model& model, const Json& messages) {
  RenderInput input;
  input.messages = messages;
  const auto text = model.chat_template->Render(input);
  EXPECT_TRUE(text.ok()) << text.status();
  const auto ids = model.tokenizer->Encode(*text, {});
  EXPECT_TRUE(ids.ok()) << ids.status();
  std::vector<Found> found;
  for (const MessageMark& mark : model.marks.Find(*ids)) {
    const std::string rest = model.tokenizer->Decode(
        std::span(*ids).subspan(mark.position_tokens), false);
    found.push_back({rest.substr(0, rest.find('\n')), mark.role});
  }
  return found;
}

TEST(MessageMarksTest, ChatMlWithADefaultSystemText) {
  const Model model = MakeModel(testing::kChatMl, kChatMlTokens, "<|im_end|>");
  EXPECT_EQ(model.marks.problem(), "");
  EXPECT_EQ(model.marks.end_of_turn(),
            model.tokenizer->FindAdded("<|im_end|>"));
  const Json talk = Json::parse(R"([
      {"role":"user","content":"\n\nassistant"},
      {"role":"assistant","content":"\nx"},
      {"role":"tool","content":"t"},
      {"role":"user","content":""}])");
  EXPECT_EQ(FindIn(model, talk),
            (std::vector<Found>{{"<|im_start|>system", Role::kSystem},
                                {"<|im_start|>user", Role::kUser},
                                {"<|im_start|>assistant", Role::kAssistant},
                                {"<|im_start|>tool", Role::kTool},
                                {"<|im_start|>user", Role::kUser},
                                {"<|im_start|>assistant", Role::kAssistant}}));
}

TEST(MessageMarksTest, ThinkBlocksAndWrappedToolAnswers) {
  const Model model =
      MakeModel(testing::kThinkingChatMl, kChatMlTokens, "<|im_end|>");
  EXPECT_EQ(model.marks.problem(), "");
  const Json talk = Json::parse(R"([
      {"role":"system","content":"s"},
      {"role":"user","content":"a"},
      {"role":"assistant","content":"b"},
      {"role":"user","content":"c"},
      {"role":"assistant","content":"","tool_calls":
        [{"function":{"name":"f","arguments":{}}}]},
      {"role":"tool","content":"one"},
      {"role":"tool","content":"two"}])");
  EXPECT_EQ(FindIn(model, talk),
            (std::vector<Found>{{"<|im_start|>system", Role::kSystem},
                                {"<|im_start|>user", Role::kUser},
                                {"<|im_start|>assistant", Role::kAssistant},
                                {"<|im_start|>user", Role::kUser},
                                {"<|im_start|>assistant", Role::kAssistant},
                                {"<|im_start|>user", Role::kTool},
                                {"<|im_start|>assistant", Role::kAssistant}}));
}

TEST(MessageMarksTest, HeadersOfSeveralSpecialTokensAfterBos) {
  const Model model = MakeModel(
      testing::kHeaderIds,
      {"<|begin|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
      "<|eot_id|>", "<|begin|>");
  EXPECT_EQ(model.marks.problem(), "");
  EXPECT_EQ(model.marks.end_of_turn(),
            model.tokenizer->FindAdded("<|eot_id|>"));
  const Json talk = Json::parse(R"([
      {"role":"system","content":"s"},{"role":"user","content":"a"}])");
  EXPECT_EQ(FindIn(model, talk),
            (std::vector<Found>{
                {"<|begin|><|start_header_id|>system<|end_header_id|>",
                 Role::kSystem},
                {"<|start_header_id|>user<|end_header_id|>", Role::kUser},
                {"<|start_header_id|>assistant<|end_header_id|>",
                 Role::kAssistant}}));
}

TEST(MessageMarksTest, HeadersWithoutASpecialTokenMarkNothing) {
  const Model model = MakeModel(testing::kPlainWords, kChatMlTokens, "");
  EXPECT_TRUE(model.marks.empty());
  EXPECT_THAT(model.marks.problem(), HasSubstr("no special token"));
  EXPECT_EQ(model.marks.end_of_turn(), std::nullopt);
  EXPECT_TRUE(
      FindIn(model, Json::parse(R"([{"role":"user","content":"user: x"}])"))
          .empty());
}

TEST(MessageMarksTest, AnAnswerWithoutAHeaderMarksNothing) {
  const Model model = MakeModel(
      "{% for m in messages %}{% if m.role == 'user' %}"
      "{{ '[INST]' + m.content + '[/INST]' }}{% else %}"
      "{{ m.content + '</s>' }}{% endif %}{% endfor %}",
      {"[INST]", "[/INST]", "</s>"}, "</s>");
  EXPECT_TRUE(model.marks.empty());
  EXPECT_THAT(model.marks.problem(), HasSubstr("assistant: "));
  EXPECT_EQ(model.marks.end_of_turn(), model.tokenizer->FindAdded("</s>"));
}

TEST(MessageMarksTest, ATemplateThatRefusesARoleStillMarksTheOthers) {
  const Model model = MakeModel(
      "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}"
      "{{ raise_exception('no ' + m.role) }}{% endif %}"
      "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
      "{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\n' }}{% endif %}",
      kChatMlTokens, "<|im_end|>");
  EXPECT_FALSE(model.marks.empty());
  EXPECT_THAT(model.marks.problem(), HasSubstr("system: "));
  EXPECT_THAT(model.marks.problem(), HasSubstr("no tool"));
  EXPECT_EQ(FindIn(model, Json::parse(R"([{"role":"user","content":"a"}])")),
            (std::vector<Found>{{"<|im_start|>user", Role::kUser},
                                {"<|im_start|>assistant", Role::kAssistant}}));
}

TEST(MessageMarksTest, RolesOpenedAlikeAreNotToldApart) {
  const Model model = MakeModel(
      "{% for m in messages %}{{ '<|im_start|>' + m.content + '<|im_end|>' }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>' }}"
      "{% endif %}",
      kChatMlTokens, "<|im_end|>");
  EXPECT_TRUE(model.marks.empty());
  EXPECT_THAT(model.marks.problem(), HasSubstr("opened as user is"));
}

TEST(MessageMarksTest, NothingIsFoundInNothing) {
  EXPECT_TRUE(MessageMarks().Find({}).empty());
  const Model model = MakeModel(testing::kChatMl, kChatMlTokens, "<|im_end|>");
  EXPECT_TRUE(model.marks.Find({}).empty());
  // A header cut off at the end is none.
  const std::uint32_t start = *model.tokenizer->FindAdded("<|im_start|>");
  EXPECT_TRUE(
      model.marks.Find(std::vector<std::uint32_t>{start, 'u', 's'}).empty());
}

}  // namespace
}  // namespace holdfast::templates
