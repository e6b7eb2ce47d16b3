// An answer goes to the client in parts, comes back as a message and is
// rendered again: as the tokens that the model wrote, or the case is listed
// here.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gateway/answer/answer_format.h"
#include "gateway/answer/testing/parse.h"
#include "gateway/openai/json.h"
#include "gateway/openai/prompt.h"
#include "gateway/openai/request.h"
#include "gateway/template/testing/byte_tokenizer.h"
#include "gateway/template/testing/qwen_templates.h"
#include "gateway/template/testing/templates.h"
#include "gateway/tokenizer/prompt_cache.h"
#include "gateway/tokenizer/protect_specials.h"
#include "gateway/tokenizer/tokenizer.h"
#include "gtest/gtest.h"

namespace holdfast::answer {
namespace {

using Ids = std::vector<std::uint32_t>;
using templates::testing::kJsonCalls;
using templates::testing::kXmlCalls;

class Model {
 public:
  explicit Model(const char* source) {
    auto tokenizer =
        gateway::Tokenizer::Create(templates::testing::ByteTokenizerSpec(
            {"<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>",
             "</tool_call>"},
            "<|im_end|>"));
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    auto compiled = templates::ChatTemplate::Create(source, {});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    template_ = *std::move(compiled);
    format_ = LearnFormat(source, *template_);
    protector_ =
        std::make_unique<gateway::SpecialProtector>(tokenizer_->added_texts());
    cache_ = std::make_unique<gateway::PromptCache>(
        *tokenizer_, gateway::PromptCache::Limits{});
  }

  const AnswerFormat& format() const { return format_; }

  openai::BuiltPrompt Prompt(const Json& body) const {
    auto request = openai::ParseChatRequest(body, {"m", 1000, true});
    EXPECT_TRUE(request.ok()) << request.error().message;
    auto prompt = openai::BuildPrompt(
        *request, {template_.get(), tokenizer_.get(), &marks_, protector_.get(),
                   cache_.get(), &format_});
    EXPECT_TRUE(prompt.ok()) << prompt.error().message;
    return prompt.ok() ? *prompt : openai::BuiltPrompt{};
  }
  Ids Encode(const std::string& text) const {
    return *tokenizer_->Encode(text, gateway::EncodeOptions{});
  }
  std::string Text(const Ids& ids) const {
    return tokenizer_->Decode(ids, false);
  }

 private:
  std::unique_ptr<gateway::Tokenizer> tokenizer_;
  std::unique_ptr<templates::ChatTemplate> template_;
  AnswerFormat format_;
  templates::MessageMarks marks_;
  std::unique_ptr<gateway::SpecialProtector> protector_;
  std::unique_ptr<gateway::PromptCache> cache_;
};

Json Conversation() {
  return Json::parse(R"({"messages":[{"role":"user","content":"Go."}],
      "tools":[{"type":"function","function":{"name":"f","parameters":{
        "type":"object","properties":{
          "s":{"type":"string"},"n":{"type":"integer"},
          "b":{"type":"boolean"},"o":{"type":"object"}}}}},
        {"type":"function","function":{"name":"g"}}]})");
}

// The message that a client keeps of an answer.
Json ClientMessage(const std::vector<Piece>& pieces) {
  Json message = {{"role", "assistant"}, {"content", nullptr}};
  std::string content;
  std::string reasoning;
  Json calls = Json::array();
  for (const Piece& piece : pieces) {
    switch (piece.kind) {
      case PieceKind::kReasoning:
        reasoning += piece.text;
        break;
      case PieceKind::kContent:
        content += piece.text;
        break;
      case PieceKind::kCall:
        calls.push_back({{"id", "call_" + std::to_string(calls.size())},
                         {"type", "function"},
                         {"function", {{"name", piece.text}}}});
        calls.back()["function"]["arguments"] = "";
        break;
      case PieceKind::kArguments: {
        Json& arguments = calls.back()["function"]["arguments"];
        arguments = arguments.get<std::string>() + piece.text;
        break;
      }
      case PieceKind::kMarkup:
        break;
    }
  }
  if (!content.empty()) message["content"] = content;
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  if (!calls.empty()) message["tool_calls"] = calls;
  return message;
}

// Whether the next prompt of the tool loop starts with the tokens of this one
// and of the answer.
bool ComesBack(const Model& model, const std::string& answer,
               const Json& more = Json::object()) {
  Json body = Conversation();
  body.update(more);
  const openai::BuiltPrompt prompt = model.Prompt(body);
  const std::vector<Piece> pieces =
      testing::Parse(model.format(), answer, prompt.ends_in_reasoning);
  body["messages"].push_back(ClientMessage(pieces));
  body["messages"].push_back(
      {{"role", "tool"}, {"tool_call_id", "call_0"}, {"content", "done"}});
  Ids next = model.Prompt(body).ids;
  Ids written = prompt.ids;
  for (const std::uint32_t id : model.Encode(answer + "<|im_end|>")) {
    written.push_back(id);
  }
  next.resize(std::min(next.size(), written.size()));
  return next == written;
}

std::string JsonCall(const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"f\", \"arguments\": " + arguments +
         "}\n</tool_call>";
}
std::string XmlCall(const std::string& parameters) {
  return "<tool_call>\n<function=f>\n" + parameters +
         "</function>\n</tool_call>";
}
std::string Parameter(const std::string& name, const std::string& value) {
  return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
}

TEST(AnswerRoundTripTest, FormatsAreLearned) {
  const AnswerFormat json = Model(kJsonCalls).format();
  EXPECT_TRUE(json.reasoning);
  EXPECT_EQ(json.calls, CallSyntax::kHermesJson);
  EXPECT_EQ(json.before_call, "\n");
  EXPECT_TRUE(json.prints_text_arguments);
  EXPECT_EQ(Describe(json), "reasoning: <think>, tool calls: JSON");

  const AnswerFormat xml = Model(kXmlCalls).format();
  EXPECT_TRUE(xml.reasoning);
  EXPECT_EQ(xml.calls, CallSyntax::kQwenXml);
  EXPECT_EQ(xml.after_think, "\n");
  EXPECT_EQ(xml.before_think_end, "\n");
  EXPECT_EQ(xml.after_think_end, "\n\n");
  EXPECT_EQ(xml.before_call, "\n\n");
  EXPECT_FALSE(xml.prints_text_arguments);

  const AnswerFormat none = Model(templates::testing::kChatMl).format();
  EXPECT_FALSE(none.reasoning);
  EXPECT_EQ(none.calls, CallSyntax::kNone);
}

TEST(AnswerRoundTripTest, WhiteSpaceIsTheTemplates) {
  const AnswerFormat format =
      Model(
          "{% for m in messages %}{% if m.role == 'assistant' %}"
          "{{ '<think> ' + m.reasoning_content + '\t</think>' + m.content + "
          "'\n\n\n<tool_call>' + m.tool_calls[0].function.name }}"
          "{% endif %}{% endfor %}")
          .format();
  EXPECT_EQ(format.after_think, " ");
  EXPECT_EQ(format.before_think_end, "\t");
  EXPECT_EQ(format.after_think_end, "");
  EXPECT_EQ(format.before_call, "\n\n\n");
  // Nothing learned where the template fails or prints none of it.
  for (const char* source :
       {"{{ raise_exception('no') }}<function=<tool_call></think>",
        "<function=<tool_call></think>"}) {
    const AnswerFormat defaults = Model(source).format();
    EXPECT_EQ(defaults.after_think_end, "\n\n");
    EXPECT_EQ(defaults.before_call, "\n\n");
  }
}

TEST(AnswerRoundTripTest, JsonAnswersComeBack) {
  const Model model(kJsonCalls);
  const std::string call = JsonCall(R"({"s": "a\n\"b\" é", "n": 7})");
  for (const std::string& answer : std::vector<std::string>{
           std::string("Yes."), call, "Look:\n" + call, call + "\n" + call,
           "Look:\n\n" + call, "<think>\nhm\n</think>\n\nYes.",
           "<think>\nhm\n</think>\n\n" + call,
           "<think>\nhm\n\nso\n</think>\n\nLook:\n" + call + "\n" +
               JsonCall(R"({"b": true, "o": {"a": [1, 2.5, null]}})"),
           JsonCall("{}"), std::string("Yes.\n\n"),
           std::string("a <tool_call> b </think> c")}) {
    EXPECT_TRUE(ComesBack(model, answer)) << answer;
  }
  const Json off = {{"chat_template_kwargs", {{"enable_thinking", false}}}};
  EXPECT_FALSE(model
                   .Prompt([&] {
                     Json body = Conversation();
                     body.update(off);
                     return body;
                   }())
                   .ends_in_reasoning);
}

TEST(AnswerRoundTripTest, XmlAnswersComeBack) {
  const Model model(kXmlCalls);
  const std::string call =
      XmlCall(Parameter("s", "a\n\"b\" é") + Parameter("n", "7"));
  for (const std::string& answer : std::vector<std::string>{
           std::string("hm\n</think>\n\nYes."), "hm\n</think>\n\n" + call,
           "hm\n\nso\n</think>\n\nLook:\n\n" + call + "\n" + XmlCall(""),
           "hm\n</think>\n\n" +
               XmlCall(Parameter("s", "") + Parameter("b", "True") +
                       Parameter("o", "{\"a\": [1, 2.5, null]}")),
           "hm\n</think>\n\n" +
               XmlCall(Parameter("s", "\n x </parameter>\n\n")),
           "hm\n</think>\n\n" + XmlCall(Parameter("other", "7"))}) {
    EXPECT_TRUE(ComesBack(model, answer)) << answer;
  }
}

// What the templates do not print as the model wrote it. Whoever compares a
// prompt with what was generated must know these.
TEST(AnswerRoundTripTest, JsonAnswersThatDoNotComeBack) {
  const Model model(kJsonCalls);
  for (const std::string& answer : std::vector<std::string>{
           // Other white space than the template's, beside tags and in the
           // JSON.
           std::string("<think>hm</think>Yes."), "Look: " + JsonCall("{}"),
           JsonCall("{\"n\":7}"), JsonCall("{}") + "\n",
           std::string("<tool_call>{\"name\": \"f\", \"arguments\": {}}"
                       "</tool_call>"),
           // Empty reasoning is printed as none, blank lines at its edges and
           // at
           // the text's start go.
           std::string("<think>\n\n</think>\n\nYes."),
           std::string("<think>\n\nhm\n</think>\n\nYes."),
           std::string("\nYes."),
           // Numbers and strings have several spellings.
           JsonCall("{\"n\": 1e2}"), JsonCall("{\"s\": \"\\u00e9\"}"),
           // Fields in another order, or more of them, or none.
           std::string("<tool_call>\n{\"arguments\": {}, \"name\": \"f\"}\n"
                       "</tool_call>"),
           std::string("<tool_call>\n{\"name\": \"f\"}\n</tool_call>"),
           JsonCall("{\"n\": 1, \"n\": 2}"),
           // A call that breaks off is closed; text behind a call moves before
           // it.
           std::string(
               "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1"),
           JsonCall("{}") + "\nDone."}) {
    EXPECT_FALSE(ComesBack(model, answer)) << answer;
  }
}

TEST(AnswerRoundTripTest, XmlAnswersThatDoNotComeBack) {
  const Model model(kXmlCalls);
  const std::string hm = "hm\n</think>\n\n";
  for (const std::string& answer : std::vector<std::string>{
           // The line break of the open <think> and the one before </think>
           // melt
           // into one token.
           std::string("\n</think>\n\nYes."),
           // Text is trimmed.
           std::string("hm\n\n</think>\n\nYes."), hm + "Yes.\n", hm + " Yes.",
           hm + "Look:\n" + XmlCall(""),
           // Booleans and null are printed as Python does, numbers in one
           // spelling, objects with its white space.
           hm + XmlCall(Parameter("b", "true")),
           hm + XmlCall(Parameter("n", "1e2")),
           hm + XmlCall(Parameter("o", "{\"a\":1}")),
           // A parameter given twice keeps its last value.
           hm + XmlCall(Parameter("s", "x") + Parameter("s", "y")),
           // No line breaks, or tags left out.
           hm + "<tool_call><function=f></function></tool_call>",
           hm + "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n"
                "</tool_call>",
           // Reasoning that does not end is closed.
           std::string("hm"),
           // A call that breaks off is closed.
           hm + "<tool_call>\n<function=f>\n<parameter=s>\nx"}) {
    EXPECT_FALSE(ComesBack(model, answer)) << answer;
  }
}

TEST(AnswerRoundTripTest, EarlierReasoningIsTheTemplatesToShow) {
  const Model model(kXmlCalls);
  Json body = Conversation();
  const std::string answer = "hm\n</think>\n\n" + XmlCall("");
  body["messages"].push_back(
      ClientMessage(testing::Parse(model.format(), answer, true)));
  body["messages"].push_back({{"role", "tool"}, {"content", "done"}});
  EXPECT_NE(model.Text(model.Prompt(body).ids).find("hm"), std::string::npos);
  body["messages"].push_back({{"role", "user"}, {"content", "And?"}});
  EXPECT_EQ(model.Text(model.Prompt(body).ids).find("hm"), std::string::npos);
}

// What clients send back always renders, calls that broke off included.
TEST(AnswerRoundTripTest, BrokenCallsRender) {
  for (const char* source : {kJsonCalls, kXmlCalls}) {
    const Model model(source);
    for (const char* arguments : {"{\"s\": \"half", "", "7", "[1]", "oh no"}) {
      Json body = Conversation();
      Json call = {{"id", "call_0"}, {"type", "function"}};
      call["function"] = {{"name", "f"}, {"arguments", arguments}};
      body["messages"].push_back(
          {{"role", "assistant"},
           {"content", nullptr},
           {"tool_calls", Json::array({std::move(call)})}});
      body["messages"].push_back({{"role", "tool"}, {"content", "bad"}});
      const std::string text = model.Text(model.Prompt(body).ids);
      EXPECT_NE(text.find(arguments), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace holdfast::answer
