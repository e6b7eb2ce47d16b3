// Completions over HTTP, against an engine that does what the test says.
#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gateway/engine/testing/take.h"
#include "gateway/service/testing/completions_fixture.h"
#include "gtest/gtest.h"

namespace holdfast::gateway::testing {
namespace {

using http::testing::RawClient;
using http::testing::RawResponse;
using std::chrono::milliseconds;

TEST_F(CompletionsTest, Chat) {
  StartAll();
  const json answer =
      Answer(Chat({{"max_tokens", 9}, {"temperature", 0}, {"seed", 5}}));
  EXPECT_EQ(answer.at("object"), "chat.completion");
  const json& choice = answer.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("content"), "Hi!");
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 4);
  EXPECT_FALSE(answer.at("holdfast").contains("prompt_ids"));

  const v1::GenerateRequest sent = engine_->last_request();
  std::vector<std::uint32_t> expected = {kImStart};
  for (const std::uint32_t id : Bytes("user\nHello")) expected.push_back(id);
  expected.push_back(kImEnd);
  expected.push_back('\n');
  expected.push_back(kImStart);
  for (const std::uint32_t id : Bytes("assistant\n")) expected.push_back(id);
  EXPECT_EQ(std::vector<std::uint32_t>(sent.prompt_ids().begin(),
                                       sent.prompt_ids().end()),
            expected);
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), expected.size());
  EXPECT_EQ(sent.max_tokens(), 9u);
  EXPECT_EQ(sent.sampling().temperature(), 0);
  EXPECT_EQ(sent.fingerprint(), "one");
  ASSERT_EQ(sent.messages_size(), 2);
  EXPECT_EQ(sent.messages(1).role(), v1::ROLE_ASSISTANT);
}

TEST_F(CompletionsTest, FieldsReachTheEngine) {
  StartAll();
  Answer({{"prompt", "abc"},
          {"temperature", 0.5},
          {"top_k", 3},
          {"top_p", 0.25},
          {"min_p", 0.125},
          {"seed", 77},
          {"repetition_penalty", 1.5},
          {"presence_penalty", 0.75},
          {"frequency_penalty", -0.5},
          {"logit_bias", {{"65", -2}}},
          {"stop", {"END", "x"}},
          {"logprobs", 2},
          {"cache_salt", "tenant"},
          {"session_id", "conversation"},
          {"holdfast", {{"cache", "read_only"}}}},
         kTextPath);
  const v1::GenerateRequest sent = engine_->last_request();
  EXPECT_EQ(sent.prompt_ids_size(), 3);
  EXPECT_EQ(sent.sampling().temperature(), 0.5f);
  EXPECT_EQ(sent.sampling().top_k(), 3u);
  EXPECT_EQ(sent.sampling().top_p(), 0.25f);
  EXPECT_EQ(sent.sampling().min_p(), 0.125f);
  EXPECT_EQ(sent.sampling().seed(), 77u);
  EXPECT_EQ(sent.sampling().repetition_penalty(), 1.5f);
  EXPECT_EQ(sent.sampling().presence_penalty(), 0.75f);
  EXPECT_EQ(sent.sampling().frequency_penalty(), -0.5f);
  EXPECT_EQ(sent.sampling().logit_bias().at(65), -2);
  ASSERT_EQ(sent.stop_strings_size(), 2);
  EXPECT_EQ(sent.stop_strings(0), "END");
  EXPECT_EQ(sent.top_logprobs(), 2u);
  EXPECT_EQ(sent.salt(), "tenant");
  EXPECT_EQ(sent.session_key(), "conversation");
  EXPECT_EQ(sent.cache_mode(), v1::CACHE_MODE_READ_ONLY);
  // Absent: what the context leaves.
  Answer({{"prompt", {1, 2, 3}}, {"holdfast", {{"cache", "bypass"}}}},
         kTextPath);
  EXPECT_EQ(engine_->last_request().max_tokens(), 4093u);
  EXPECT_EQ(engine_->last_request().cache_mode(), v1::CACHE_MODE_BYPASS);
  Post(kChatPath, Chat().dump(), "x-session-id: header\r\n");
  EXPECT_EQ(engine_->last_request().session_key(), "header");
}

TEST_F(CompletionsTest, StreamedChat) {
  StartAll();
  const Events events = Stream(
      Chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  EXPECT_TRUE(events.done);
  EXPECT_EQ(events.content(), "Hi!");
  ASSERT_EQ(events.data.size(), 4u);
  EXPECT_EQ(events.data[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events.data[2]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events.data[2]["holdfast"]["cache_source"], "none");
  EXPECT_TRUE(events.data[3]["choices"].empty());
  EXPECT_EQ(events.data[3]["usage"]["completion_tokens"], 4);
}

TEST_F(CompletionsTest, StreamedText) {
  StartAll();
  const RawResponse response =
      Post(kTextPath, json{{"prompt", "abc"}, {"stream", true}});
  EXPECT_TRUE(
      response.headers.at("content-type").starts_with("text/event-stream"));
  const Events events = ParseEvents(response.body);
  EXPECT_TRUE(events.done);
  ASSERT_EQ(events.data.size(), 2u);
  EXPECT_EQ(events.data[0]["choices"][0]["text"], "Hi!");
  EXPECT_EQ(events.data[1]["choices"][0]["finish_reason"], "stop");
}

TEST_F(CompletionsTest, CachedTokensAreReported) {
  StartAll();
  Script({Started(20, 11), Tokens({'a'}),
          Finished(v1::Finished::LENGTH, 20, 31, 1)});
  const json answer = Answer(Chat());
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 20);
  EXPECT_EQ(answer["holdfast"]["cache_source"], "resident");
  EXPECT_EQ(answer["holdfast"]["resumed_at_tokens"], 20);
  EXPECT_EQ(answer["holdfast"]["computed_tokens"], 11);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
}

TEST_F(CompletionsTest, CharactersAreNeverSplit) {
  StartAll();
  Script({Started(0, 1), Tokens({0xe2}), Tokens({0x82}), Tokens({0xac, 0xe2}),
          Finished(v1::Finished::LENGTH, 0, 1, 4)});
  const Events events = Stream(Chat({{"stream", true}}));
  EXPECT_EQ(events.content(), "\xe2\x82\xac\xef\xbf\xbd");  // euro, U+FFFD
  EXPECT_EQ(events.data.size(), 4u);  // role, euro, the rest, finish
}

TEST_F(CompletionsTest, StopStringsAreNotShown) {
  StartAll();
  Script({Started(0, 1), Tokens(Bytes("one E")), Tokens(Bytes("N")),
          Tokens(Bytes("D")), Finished(v1::Finished::STOP_STRING, 0, 1, 7)});
  EXPECT_EQ(Stream(Chat({{"stream", true}, {"stop", "END"}})).content(),
            "one ");
  const json answer = Answer(Chat({{"stop", "END"}}));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "one ");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
}

TEST_F(CompletionsTest, Logprobs) {
  StartAll();
  v1::GenerateEvent tokens = Tokens({'a', 0xe2, 0x82, 0xac, kImEnd});
  for (v1::OutputToken& token : *tokens.mutable_tokens()->mutable_tokens()) {
    token.set_logprob(-0.5f);
    v1::TokenLogprob* top = token.add_top();
    top->set_id('b');
    top->set_logprob(-0.25f);
  }
  Script({Started(0, 1), tokens, Finished(v1::Finished::STOP, 0, 1, 5)});
  const json ask = Chat({{"logprobs", true}, {"top_logprobs", 1}});
  const json answer = Answer(ask);
  const json& content = answer["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 4u);  // the end of the turn is no text
  EXPECT_EQ(content[0]["token"], "a");
  EXPECT_EQ(content[0]["logprob"], -0.5);
  EXPECT_EQ(content[0]["top_logprobs"][0]["token"], "b");
  EXPECT_EQ(content[3]["bytes"], json({0xac}));
  EXPECT_TRUE(Answer(Chat())["choices"][0]["logprobs"].is_null());
}

// When the line's end leaves, the first half of a stop string is kept back.
TEST_F(CompletionsTest, LogprobsAreOfTheAnswersTokensAlone) {
  StartAll();
  Script({Started(0, 1), Tokens({'a'}), Tokens({'\n'}), Tokens({'2'}),
          Tokens({'.'}), Finished(v1::Finished::STOP, 0, 1, 4)});
  json ask = Chat({{"logprobs", true}, {"stop", {"\n\n", "2."}}});
  const json choice = Answer(ask)["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "a\n");
  EXPECT_EQ(choice["logprobs"]["content"].size(), 2u) << choice;
  ask["stream"] = true;
  std::size_t entries = 0;
  for (const json& event : Stream(ask).data) {
    const json& logprobs = event["choices"][0]["logprobs"];
    if (!logprobs.is_null()) entries += logprobs["content"].size();
  }
  EXPECT_EQ(entries, 2u);
}

// The head and the first comments are there before the engine has a token.
TEST_F(CompletionsTest, KeepAliveDuringPrefill) {
  config_.sse_keep_alive_ms = 10;
  StartAll();
  std::promise<void> go_on;
  auto went_on = go_on.get_future();
  engine_->SetGenerator([&](const auto&, auto&, auto& writer) {
    writer.Write(Progress(0, 100));
    Take(std::move(went_on));
    writer.Write(Tokens({'x'}));
    writer.Write(Finished(v1::Finished::STOP, 0, 1, 1));
    return grpc::Status::OK;
  });
  const auto client = Connect();
  client->SendRequest("POST", kChatPath, Chat({{"stream", true}}).dump());
  EXPECT_NE(client->ReadUntil("\"role\":\"assistant\"").find("200 OK"),
            std::string::npos);
  client->ReadUntil(": keep-alive\n\n");
  client->ReadUntil(": keep-alive\n\n");
  go_on.set_value();
  EXPECT_NE(client->ReadUntil("[DONE]").find("\"x\""), std::string::npos);
}

// A request in the queue has no events at all.
TEST_F(CompletionsTest, HeadIsSentWhileQueued) {
  StartAll();
  std::promise<void> go_on;
  auto went_on = go_on.get_future();
  engine_->SetGenerator([&](const auto&, auto&, auto& writer) {
    Take(std::move(went_on));
    writer.Write(Refused(v1::Refused::DRAINING, "the engine stops", 0));
    return grpc::Status::OK;
  });
  const auto client = Connect();
  client->SendRequest("POST", kChatPath, Chat({{"stream", true}}).dump());
  client->ReadUntil("\"role\":\"assistant\"");
  go_on.set_value();
  const std::string rest = client->ReadUntil("0\r\n\r\n");
  EXPECT_NE(rest.find("event: error\ndata: {\"error\""), std::string::npos);
  EXPECT_NE(rest.find("the engine stops"), std::string::npos);
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
}

// The client leaves: in the queue, in prefill, in decode; stream or not.
class DisconnectTest
    : public CompletionsTest,
      public ::testing::WithParamInterface<std::tuple<int, bool, bool>> {};

TEST_P(DisconnectTest, CancelsTheEngine) {
  const auto [phase, stream, half_close] = GetParam();
  StartAll();
  std::promise<void> reached;
  std::promise<bool> cancelled;
  engine_->SetGenerator(
      [&, phase = phase](const auto&, auto& context, auto& writer) {
        if (phase >= 1) writer.Write(Progress(1, 2));
        if (phase >= 2) writer.Write(Tokens({'x'}));
        reached.set_value();
        cancelled.set_value(WaitForCancel(context));
        return grpc::Status::CANCELLED;
      });
  const auto client = Connect();
  client->SendRequest("POST", kChatPath, Chat({{"stream", stream}}).dump());
  Take(reached.get_future());
  if (half_close) {
    client->HalfClose();
  } else {
    client->Close();
  }
  EXPECT_TRUE(Take(cancelled.get_future()));
  // Others go on.
  Script({Tokens({'y'}), Finished(v1::Finished::STOP, 0, 1, 1)});
  EXPECT_EQ(Answer(Chat())["choices"][0]["message"]["content"], "y");
  EXPECT_NE(
      Get("/metrics").body.find("holdfast_http_client_disconnects_total 1"),
      std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Phases, DisconnectTest,
                         ::testing::Combine(::testing::Values(0, 1, 2),
                                            ::testing::Bool(),
                                            ::testing::Bool()));

TEST_F(CompletionsTest, BadRequestsNameTheField) {
  StartAll();
  EXPECT_EQ(Refusal(Chat({{"temperature", "hot"}}), 400).at("param"),
            "temperature");
  EXPECT_EQ(Refusal(Chat({{"messages", "hello"}}), 400).at("param"),
            "messages");
  EXPECT_EQ(Refusal(Chat({{"n", 2}}), 400).at("param"), "n");
  Refusal(Chat({{"model", "other"}}), 404);
  Refusal(json::array(), 400);
  for (const std::string& body : std::vector<std::string>{
           "", "{", "nonsense", "{\"messages\":\"\xff\"}", "[1,2"}) {
    EXPECT_EQ(Post(kChatPath, body).status, 400) << body;
  }
  const json overflow =
      Refusal({{"prompt", std::string(5000, 'x')}}, 400, kTextPath);
  EXPECT_EQ(overflow.at("code"), "context_length_exceeded");
  EXPECT_EQ(overflow.at("param"), "prompt");
  EXPECT_NE(overflow.at("message").get<std::string>().find(
                "exceeds the available context size"),
            std::string::npos);
  EXPECT_EQ(engine_->generate_calls(), 0);
  EXPECT_EQ(Post(kChatPath, Chat()).status, 200);
}

TEST_F(CompletionsTest, TextFarOverTheContextIsNotTokenizedToItsEnd) {
  StartAll();
  // Pieces of one token each, and one piece of them all.
  for (const char unit : {'.', 'x'}) {
    const std::string text(100'000, unit);
    json message = {{"role", "user"}, {"content", text}};
    const json chat =
        Refusal({{"messages", json::array({message})}}, 400, kChatPath);
    EXPECT_EQ(chat.at("code"), "context_length_exceeded");
    EXPECT_EQ(chat.at("param"), "messages");
    EXPECT_EQ(chat.at("n_prompt_tokens"), 4097);
    EXPECT_NE(chat.at("message").get<std::string>().find(
                  "the prompt of over 4096 tokens exceeds the available "
                  "context size"),
              std::string::npos);
    const json prompt = Refusal({{"prompt", text}}, 400, kTextPath);
    EXPECT_EQ(prompt.at("param"), "prompt");
    EXPECT_EQ(prompt.at("n_prompt_tokens"), 4097);
    EXPECT_EQ(Refusal({{"content", text}}, 400, "/tokenize").at("param"),
              "content");
  }
}

TEST_F(CompletionsTest, MalformedRequestsAreRefusedWithoutAnEngine) {
  StartGateway();
  EXPECT_EQ(Post(kChatPath, std::string("{")).status, 400);
}

TEST_F(CompletionsTest, DebugFieldsNeedADebugEngine) {
  StartAll();
  for (const json& field : {json{{"digest", true}}, json{{"force", "text"}}})
    Refusal(Chat({{"holdfast", field}}), 400);
  EXPECT_EQ(engine_->generate_calls(), 0);
}

TEST_F(CompletionsTest, DebugFields) {
  engine_->SetStatus([](auto& status) { status.set_debug(true); });
  StartAll();
  v1::GenerateEvent finished = Finished(v1::Finished::STOP, 0, 31, 2);
  finished.mutable_finished()->mutable_digests()->set_first_logits("\x01\xff");
  finished.mutable_finished()->mutable_digests()->set_taint(31);
  Script({Started(0, 31), Tokens({'o', kImEnd}), finished});
  const json answer =
      Answer(Chat({{"holdfast", {{"digest", true}, {"force", "o"}}}}));
  const json& report = answer.at("holdfast");
  EXPECT_EQ(report.at("output_ids"), json({'o', kImEnd}));
  EXPECT_EQ(report.at("prompt_ids").size(), 24u);
  EXPECT_EQ(report.at("digests").at("first_logits"), "01ff");
  EXPECT_EQ(report.at("digests").at("taint"), 31);
  const v1::GenerateRequest sent = engine_->last_request();
  EXPECT_TRUE(sent.digest());
  EXPECT_TRUE(sent.force());
  ASSERT_EQ(sent.forced_ids_size(), 2);
  EXPECT_EQ(sent.forced_ids(0), 'o');
  EXPECT_EQ(sent.forced_ids(1), kImEnd);
}

TEST_F(CompletionsTest, DebugAnswers) {
  config_.debug_answers = folder_ + "/answers";
  std::ofstream(config_.debug_answers)
      << R"({"pattern":"^Hel+o$","answer":"forced"})";
  engine_->SetStatus([](auto& status) { status.set_debug(true); });
  StartAll();
  Answer(Chat());
  EXPECT_TRUE(engine_->last_request().force());
  EXPECT_EQ(engine_->last_request().forced_ids_size(), 7);
  Answer({{"messages", {{{"role", "user"}, {"content", "other"}}}}});
  EXPECT_FALSE(engine_->last_request().force());
}

TEST_F(CompletionsTest, ManyAtOnce) {
  StartAll();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(Connect());
    clients.back()->SendRequest("POST", kChatPath,
                                Chat({{"stream", i % 2 == 0}}).dump());
  }
  for (auto& client : clients) EXPECT_EQ(client->ReadResponse().status, 200);
}

}  // namespace
}  // namespace holdfast::gateway::testing
