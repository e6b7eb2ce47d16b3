// Reasoning and tool calls of chats over HTTP, against an engine that says what
// the test does.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gateway/service/testing/gateway_fixture.h"
#include "gateway/template/testing/byte_tokenizer.h"
#include "gateway/template/testing/qwen_templates.h"
#include "gtest/gtest.h"
#include "shared/tokenizer_proto.h"

namespace holdfast::gateway::testing {
namespace {

using http::testing::RawResponse;

constexpr char kChatPath[] = "/v1/chat/completions";
constexpr char kJsonCall[] =
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";

class ChatAnswersTest : public GatewayTest {
 protected:
  void Serve(const char* chat_template, bool special_tags = false) {
    TokenizerSpec spec = templates::testing::ByteTokenizerSpec(
        {"<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>",
         "</tool_call>"},
        "<|im_end|>");
    for (AddedToken& token : spec.added_tokens)
      token.special = token.special || special_tags;
    spec.chat_template = chat_template;
    engine_->SetTokenizer(ToProto(spec));
    StartAll();
  }

  // The engine says this, in events of `piece` bytes.
  void Say(const std::string& text, v1::Finished::Reason reason,
           std::size_t piece = 3) {
    SayIds(Bytes(text), reason, piece);
  }
  void SayIds(const std::vector<std::uint32_t>& ids,
              v1::Finished::Reason reason, std::size_t piece = 3) {
    engine_->SetGenerator([=](const auto&, auto&, auto& writer) {
      for (std::size_t i = 0; i < ids.size(); i += piece) {
        const std::size_t end = std::min(ids.size(), i + piece);
        writer.Write(Tokens({ids.begin() + static_cast<std::ptrdiff_t>(i),
                             ids.begin() + static_cast<std::ptrdiff_t>(end)}));
      }
      writer.Write(
          Finished(reason, 0, 1, static_cast<std::uint32_t>(ids.size())));
      return grpc::Status::OK;
    });
  }

  static json WithTools(const json& more = json::object()) {
    json body = Chat({{"tools",
                       {{{"type", "function"},
                         {"function",
                          {{"name", "f"},
                           {"parameters",
                            {{"properties",
                              {{"a", {{"type", "integer"}}},
                               {"s", {{"type", "string"}}}}}}}}}}}}});
    body.update(more);
    return body;
  }
  json Choice(const json& body) {
    const RawResponse response = Post(kChatPath, body);
    EXPECT_EQ(response.status, 200) << response.body;
    usage_ = json::parse(response.body).at("usage");
    return json::parse(response.body).at("choices").at(0);
  }
  // The message that the deltas of a stream make up, and its finish_reason.
  json StreamedChoice(json body) {
    body["stream"] = true;
    const RawResponse response = Post(kChatPath, body);
    EXPECT_EQ(response.status, 200) << response.body;
    const Events events = ParseEvents(response.body);
    EXPECT_TRUE(events.done);
    json message = {{"role", "assistant"}, {"content", nullptr}};
    json finish;
    deltas_ = 0;
    for (const json& event : events.data) {
      const json& choice = event.at("choices").at(0);
      if (!choice.at("finish_reason").is_null())
        finish = choice.at("finish_reason");
      AddDelta(choice.at("delta"), &message);
    }
    return {{"message", message}, {"finish_reason", finish}};
  }

  json usage_;
  int deltas_ = 0;

 private:
  void AddDelta(const json& delta, json* message) {
    for (const char* field : {"content", "reasoning_content"}) {
      if (!delta.contains(field) || delta.at(field) == "") continue;
      const json& before = (*message)[field];
      (*message)[field] = (before.is_null() ? "" : before.get<std::string>()) +
                          delta.at(field).get<std::string>();
      ++deltas_;
    }
    for (const json& call : delta.contains("tool_calls")
                                ? delta.at("tool_calls")
                                : json::array()) {
      json& calls = (*message)["tool_calls"];
      const std::size_t index = call.at("index");
      if (call.contains("id")) {
        EXPECT_EQ(index, calls.size());
        EXPECT_EQ(call.at("type"), "function");
        EXPECT_EQ(call.at("function").at("arguments"), "");
        calls.push_back(call);
        calls.back().erase("index");
        continue;
      }
      ++deltas_;
      EXPECT_EQ(index + 1, calls.size());
      json& arguments = calls.at(index)["function"]["arguments"];
      arguments = arguments.get<std::string>() +
                  call.at("function").at("arguments").get<std::string>();
    }
  }
};

// Ids differ from answer to answer.
json WithoutIds(json choice) {
  choice.erase("index");
  choice.erase("logprobs");
  if (choice["message"].contains("tool_calls")) {
    for (json& call : choice["message"]["tool_calls"]) call.erase("id");
  }
  return choice;
}

TEST_F(ChatAnswersTest, WholeAndStreamedAnswersSayTheSame) {
  Serve(templates::testing::kXmlCalls);
  Say("I look.\n</think>\n\nLooking:\n\n<tool_call>\n<function=f>\n"
      "<parameter=a>\n7\n</parameter>\n<parameter=s>\nab\ncd\n</parameter>\n"
      "</function>\n</tool_call>\n<tool_call>\n<function=f>\n</function>\n"
      "</tool_call>",
      v1::Finished::STOP);
  const json choice = Choice(WithTools());
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  const json& message = choice.at("message");
  EXPECT_EQ(message.at("reasoning_content"), "I look.");
  EXPECT_EQ(message.at("content"), "Looking:");
  ASSERT_EQ(message.at("tool_calls").size(), 2u);
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"],
            "{\"a\": 7, \"s\": \"ab\\ncd\"}");
  EXPECT_EQ(message["tool_calls"][1]["function"]["arguments"], "{}");
  EXPECT_EQ(usage_["completion_tokens_details"]["reasoning_tokens"],
            sizeof("I look.\n</think>") - 1);
  EXPECT_EQ(WithoutIds(StreamedChoice(WithTools())), WithoutIds(choice));
  EXPECT_GT(deltas_, 10);
}

TEST_F(ChatAnswersTest, IdsOfCallsAreUnique) {
  Serve(templates::testing::kJsonCalls);
  Say(std::string(kJsonCall) + "\n" + kJsonCall, v1::Finished::STOP);
  std::set<std::string> ids;
  for (int i = 0; i < 4; ++i) {
    const json choice =
        i % 2 == 0 ? Choice(WithTools()) : StreamedChoice(WithTools());
    EXPECT_TRUE(choice["message"]["content"].is_null());
    for (const json& call : choice["message"]["tool_calls"])
      ids.insert(call.at("id").get<std::string>());
  }
  EXPECT_EQ(ids.size(), 8u);
}

TEST_F(ChatAnswersTest, TagsThatAreSpecialTokensCount) {
  Serve(templates::testing::kJsonCalls, /*special_tags=*/true);
  std::vector<std::uint32_t> ids = {kImEnd + 1};  // <think>
  const auto add = [&ids](const std::string& text, std::uint32_t tag) {
    for (const std::uint32_t id : Bytes(text)) ids.push_back(id);
    ids.push_back(tag);
  };
  add("\nhm\n", kImEnd + 2);
  add("\n\n", kImEnd + 3);
  add("{\"name\": \"f\", \"arguments\": {}}", kImEnd + 4);
  SayIds(ids, v1::Finished::STOP, 1);
  const json message = Choice(WithTools())["message"];
  EXPECT_EQ(message["reasoning_content"], "hm");
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "f");
}

TEST_F(ChatAnswersTest, WithoutToolsCallsAreText) {
  Serve(templates::testing::kJsonCalls);
  Say(kJsonCall, v1::Finished::STOP);
  for (const json& body : {Chat(), Chat({{"tools", json::array()}}),
                           WithTools({{"tool_choice", "none"}}),
                           Chat({{"tools", {{{"type", "web_search"}}}}})}) {
    const json choice = Choice(body);
    EXPECT_EQ(choice["message"]["content"], kJsonCall);
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
}

TEST_F(ChatAnswersTest, ToolsThatTheTemplateDoesNotShowAreRefused) {
  Serve(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
      "<|im_end|>\n{% endfor %}<|im_start|>assistant\n");
  Say("Hi", v1::Finished::STOP);
  const RawResponse refused = Post(kChatPath, WithTools());
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json::parse(refused.body)["error"]["param"], "tools");
  EXPECT_EQ(engine_->generate_calls(), 0);
  for (const json& body :
       {WithTools({{"tool_choice", "none"}}), Chat({{"tools", json::array()}})})
    EXPECT_EQ(Choice(body)["message"]["content"], "Hi");
}

TEST_F(ChatAnswersTest, TextCompletionsAreNotRead) {
  Serve(templates::testing::kJsonCalls);
  Say("<think>a</think>b", v1::Finished::STOP);
  const json answer =
      json::parse(Post("/v1/completions", json{{"prompt", "<think>"}}).body);
  EXPECT_EQ(answer["choices"][0]["text"], "<think>a</think>b");
  EXPECT_FALSE(answer["usage"].contains("completion_tokens_details"));
}

TEST_F(ChatAnswersTest, CutsInsideReasoningAndCalls) {
  Serve(templates::testing::kJsonCalls);
  // By length, the call whole or not.
  const std::string call = kJsonCall;
  Say(call.substr(0, call.find("}}")), v1::Finished::LENGTH);
  json choice = Choice(WithTools());
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"],
            "{\"a\": 1");
  EXPECT_EQ(WithoutIds(StreamedChoice(WithTools())), WithoutIds(choice));
  Say("<tool_call>\n{\"na", v1::Finished::LENGTH);
  choice = Choice(WithTools());
  EXPECT_EQ(choice["message"]["content"], "<tool_call>\n{\"na");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  // Inside a character.
  std::vector<std::uint32_t> ids = Bytes("<think>\nhm");
  ids.push_back(0xe2);
  SayIds(ids, v1::Finished::LENGTH);
  choice = Choice(WithTools());
  EXPECT_EQ(choice["message"]["reasoning_content"], "hm\xef\xbf\xbd");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  // By a stop string.
  Say("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a END",
      v1::Finished::STOP_STRING);
  choice = Choice(WithTools({{"stop", "END"}}));
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"],
            "{\"s\": \"a ");
  EXPECT_EQ(WithoutIds(StreamedChoice(WithTools({{"stop", "END"}}))),
            WithoutIds(choice));
}

TEST_F(ChatAnswersTest, OneCallOnly) {
  Serve(templates::testing::kJsonCalls);
  Say(kJsonCall, v1::Finished::STOP_STRING);
  const json choice =
      Choice(WithTools({{"parallel_tool_calls", false}, {"stop", "x"}}));
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  const v1::GenerateRequest sent = engine_->last_request();
  ASSERT_EQ(sent.stop_strings_size(), 2);
  EXPECT_EQ(sent.stop_strings(1), "</tool_call>");
  Choice(Chat({{"parallel_tool_calls", false}}));
  EXPECT_EQ(engine_->last_request().stop_strings_size(), 0);
}

TEST_F(ChatAnswersTest, ThinkingIsSwitchedOff) {
  Serve(templates::testing::kXmlCalls);
  Say("Yes.", v1::Finished::STOP);
  EXPECT_EQ(Choice(Chat())["message"]["reasoning_content"], "Yes.");
  for (const json& off :
       {json{{"enable_thinking", false}}, json{{"reasoning_effort", "none"}}}) {
    EXPECT_EQ(Choice(Chat(off))["message"]["content"], "Yes.");
    EXPECT_EQ(usage_["completion_tokens_details"]["reasoning_tokens"], 0);
  }
}

// Every sampled token has its entry, whatever its text became.
TEST_F(ChatAnswersTest, LogprobsOfAllTokens) {
  Serve(templates::testing::kJsonCalls);
  const std::string text =
      "<think>\nhm\n</think>\n\nNow:\n" + std::string(kJsonCall);
  v1::GenerateEvent tokens = Tokens(Bytes(text));
  for (v1::OutputToken& token : *tokens.mutable_tokens()->mutable_tokens())
    token.set_logprob(-0.5f);
  engine_->SetGenerator([=](const auto&, auto&, auto& writer) {
    writer.Write(tokens);
    writer.Write(Finished(v1::Finished::STOP, 0, 1, 9));
    return grpc::Status::OK;
  });
  const json ask = WithTools({{"logprobs", true}});
  EXPECT_EQ(Choice(ask)["logprobs"]["content"].size(), text.size());
  json streamed = ask;
  streamed["stream"] = true;
  std::size_t entries = 0;
  for (const json& event : ParseEvents(Post(kChatPath, streamed).body).data) {
    const json& logprobs = event["choices"][0]["logprobs"];
    if (!logprobs.is_null()) entries += logprobs["content"].size();
  }
  EXPECT_EQ(entries, text.size());
}

// What an engine says whose thinking budget closes it behind `thought`.
void SayClosed(FakeEngine* engine, const std::string& thought,
               const std::string& rest) {
  engine->SetGenerator([=](const auto& request, auto&, auto& writer) {
    const auto prompt = static_cast<std::uint32_t>(request.prompt_ids_size());
    writer.Write(Tokens(Bytes(thought)));
    for (const std::uint32_t id : request.thinking_budget().words()) {
      v1::GenerateEvent word;
      v1::OutputToken* token = word.mutable_tokens()->add_tokens();
      token->set_id(id);
      token->set_hidden(true);
      writer.Write(word);
    }
    writer.Write(Tokens(Bytes(rest)));
    writer.Write(Finished(v1::Finished::LENGTH, 0, prompt, 99));
    return grpc::Status::OK;
  });
}

TEST_F(ChatAnswersTest, TheThinkingBudgetsWordsAreHidden) {
  Serve(templates::testing::kXmlCalls);
  constexpr std::uint32_t kThinkEndId = 260;
  SayClosed(engine_.get(), "Hm.\n", "\n\nYes.");
  const json body = Chat({{"thinking_budget", 4}, {"session_id", "s"}});
  const json message = Choice(body).at("message");
  EXPECT_EQ(message.at("reasoning_content"), "Hm.");
  EXPECT_EQ(message.at("content"), "Yes.");
  const json streamed = StreamedChoice(body).at("message");
  EXPECT_EQ(streamed.at("reasoning_content"), "Hm.");
  EXPECT_EQ(streamed.at("content"), "Yes.");
  const v1::ThinkingBudget asked = engine_->last_request().thinking_budget();
  EXPECT_EQ(asked.tokens(), 4u);
  EXPECT_TRUE(asked.open());
  EXPECT_EQ(asked.close_tag(), "</think>");
  EXPECT_EQ(asked.close_id(), kThinkEndId);
  ASSERT_GT(asked.words_size(), 20);
  EXPECT_EQ(asked.words(asked.words_size() - 1), kThinkEndId);
  const auto words = static_cast<std::uint32_t>(asked.words_size());
  const json usage = json::parse(Post(kChatPath, body).body).at("usage");
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 4 + words);

  const v1::SentTurn turn = engine_->told().back().turn();
  ASSERT_EQ(turn.hidden_size(), 1);
  EXPECT_EQ(turn.hidden(0).kind(), v1::HiddenSpan::THINKING_BUDGET);
  EXPECT_EQ(turn.hidden(0).end_tokens() - turn.hidden(0).begin_tokens(), words);
  EXPECT_EQ(turn.reasoning_end_tokens(), turn.hidden(0).end_tokens());
}

TEST_F(ChatAnswersTest, TheWordsHaveNoLogprobs) {
  Serve(templates::testing::kXmlCalls);
  SayClosed(engine_.get(), "Hm.", "Yes.");
  const json choice =
      Choice(Chat({{"thinking_budget", 3}, {"logprobs", true}}));
  EXPECT_EQ(choice["logprobs"]["content"].size(), 7u);  // Hm. and Yes.
}

TEST_F(ChatAnswersTest, ACharacterThatTheBudgetCutIsSentAndRecorded) {
  Serve(templates::testing::kXmlCalls);
  SayClosed(engine_.get(), "Hm\xC3", "Yes.");
  const json body = Chat({{"thinking_budget", 3}, {"session_id", "s"}});
  EXPECT_EQ(Choice(body).at("message").at("reasoning_content"),
            "Hm\xEF\xBF\xBD");
  const v1::SentTurn turn = engine_->told().back().turn();
  EXPECT_EQ(turn.reasoning().text(), "Hm\xEF\xBF\xBD");
  // No white space stands for it.
  ASSERT_EQ(turn.reasoning().gaps_size(), 1);
  EXPECT_EQ(turn.reasoning().gaps(0).begin_bytes(), 5u);
}

TEST_F(ChatAnswersTest, StopStringsAreNotLookedForInTheWords) {
  Serve(templates::testing::kXmlCalls);
  SayClosed(engine_.get(), "Hm.", "Yes.");
  const json message =
      Choice(Chat({{"thinking_budget", 3}, {"stop", {"thought", "s."}}}))
          .at("message");
  EXPECT_EQ(message.at("reasoning_content"), "Hm.");
  EXPECT_EQ(message.at("content"), "Ye");
}

TEST_F(ChatAnswersTest, TheServersThinkingBudgetIsADefault) {
  config_.thinking_budget = 7;
  Serve(templates::testing::kXmlCalls);
  Say("Hm.\n</think>\n\nYes.", v1::Finished::STOP);
  (void)Choice(Chat());
  EXPECT_EQ(engine_->last_request().thinking_budget().tokens(), 7u);
  (void)Choice(Chat({{"thinking_budget", -1}}));
  EXPECT_FALSE(engine_->last_request().has_thinking_budget());
  // None at all is an empty block, as templates write it.
  (void)Choice(Chat({{"thinking_budget", 0}}));
  const v1::ThinkingBudget none = engine_->last_request().thinking_budget();
  EXPECT_EQ(none.tokens(), 0u);
  EXPECT_EQ((std::vector(none.words().begin(), none.words().end())),
            (std::vector<std::uint32_t>{'\n', 260}));
}

TEST_F(ChatAnswersTest, AModelThatDoesNotThinkHasNoBudget) {
  StartAll();
  (void)Choice(Chat({{"thinking_budget", 0}}));
  EXPECT_FALSE(engine_->last_request().has_thinking_budget());
}

}  // namespace
}  // namespace holdfast::gateway::testing
