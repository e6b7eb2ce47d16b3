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
#include "gateway/service/testing/gateway_fixture.h"
#include "gtest/gtest.h"

namespace holdfast::gateway::testing {
namespace {

using http::testing::RawClient;
using http::testing::RawResponse;
using std::chrono::milliseconds;

constexpr char kChatPath[] = "/v1/chat/completions";
constexpr char kTextPath[] = "/v1/completions";

class CompletionsTest : public GatewayTest {
 protected:
  // The engine's next calls write these events.
  void Script(std::vector<v1::GenerateEvent> events) {
    engine_->SetGenerator(
        [events = std::move(events)](const auto&, auto&, auto& writer) {
          for (const v1::GenerateEvent& event : events) writer.Write(event);
          return grpc::Status::OK;
        });
  }
  Events Stream(const json& body) {
    const RawResponse response = Post(kChatPath, body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_TRUE(response.complete);
    return ParseEvents(response.body);
  }
  json Answer(const json& body, const char* path = kChatPath) {
    const RawResponse response = Post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }
  json Refusal(const json& body, int status, const char* path = kChatPath) {
    const RawResponse response = Post(path, body);
    EXPECT_EQ(response.status, status) << response.body;
    return json::parse(response.body).at("error");
  }
};

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

TEST_F(CompletionsTest, ClientThatLeavesWhileTheEngineIsAbsent) {
  config_.engine_wait_ms = 600000;
  StartGateway();
  const auto client = Connect();
  client->SendRequest("POST", kChatPath, Chat().dump());
  client->Close();
  // Noticed long before the wait for the engine ends.
  for (int i = 0; i < 1000; ++i) {
    if (Get("/metrics").body.find("code=\"499\"") != std::string::npos) return;
    std::this_thread::sleep_for(milliseconds(2));
  }
  ADD_FAILURE() << "the disconnect was not noticed";
}

TEST_F(CompletionsTest, AbsentEngineGives503) {
  config_.engine_wait_ms = 20;
  StartGateway();
  for (const bool stream : {false, true}) {
    const RawResponse response = Post(kChatPath, Chat({{"stream", stream}}));
    EXPECT_EQ(response.status, 503);
    EXPECT_TRUE(response.headers.contains("retry-after"));
    EXPECT_NE(response.body.find("absent"), std::string::npos);
  }
  EXPECT_EQ(Post("/tokenize", json{{"content", "x"}}).status, 503);
}

TEST_F(CompletionsTest, WaitsForTheEngine) {
  StartGateway();
  const auto client = Connect();
  client->SendRequest("POST", kChatPath, Chat().dump());
  StartEngine();
  EXPECT_EQ(client->ReadResponse().status, 200);
}

TEST_F(CompletionsTest, EngineThatDiesInMidStream) {
  StartAll();
  std::promise<void> written;
  engine_->SetGenerator([&](const auto&, auto& context, auto& writer) {
    writer.Write(Tokens(Bytes("half")));
    written.set_value();
    WaitForCancel(context);
    return grpc::Status::CANCELLED;
  });
  const auto client = Connect();
  client->SendRequest("POST", kChatPath, Chat({{"stream", true}}).dump());
  const std::string begin = client->ReadUntil("half\"");
  engine_->Kill();
  const std::string rest = client->ReadUntil("0\r\n\r\n");
  EXPECT_NE(rest.find("event: error\ndata: {\"error\""), std::string::npos)
      << rest;
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
  // The connection and the gateway go on; a new engine is found by itself.
  MakeEngine("one");
  StartEngine();
  client->SendRequest("POST", kChatPath, Chat().dump());
  EXPECT_EQ(client->ReadResponse().status, 200);
}

TEST_F(CompletionsTest, EngineThatDiesBeforeTheAnswer) {
  config_.engine_wait_ms = 50;
  StartAll();
  std::promise<void> reached;
  engine_->SetGenerator([&](const auto&, auto& context, auto&) {
    reached.set_value();
    WaitForCancel(context);
    return grpc::Status::CANCELLED;
  });
  const auto client = Connect();
  client->SendRequest("POST", kChatPath, Chat().dump());
  Take(reached.get_future());
  engine_->Kill();
  const RawResponse response = client->ReadResponse();
  EXPECT_EQ(response.status, 503);
  EXPECT_TRUE(response.headers.contains("retry-after"));
}

// The engine is gone, and the gateway has not noticed when the request comes.
TEST_F(CompletionsTest, RequestRightAfterTheEngineDied) {
  timings_.engine.poll = std::chrono::hours(1);
  StartAll();
  engine_->Kill();
  const auto client = Connect();
  client->SendRequest("POST", kChatPath, Chat().dump());
  // Once the request has met nobody, the gateway knows.
  while (Get("/health").status == 200) continue;
  MakeEngine("one");
  StartEngine();
  EXPECT_EQ(client->ReadResponse().status, 200);
}

TEST_F(CompletionsTest, Refusals) {
  StartAll();
  const auto refuse = [&](v1::Refused::Reason reason,
                          std::uint32_t retry_after_ms) {
    v1::GenerateEvent event = Refused(reason, "because", retry_after_ms);
    event.mutable_refused()->set_max_context_tokens(4096);
    Script({event});
    return Post(kChatPath, Chat({{"stream", true}}));
  };
  RawResponse response = refuse(v1::Refused::QUEUE_FULL, 2500);
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.headers.at("retry-after"), "3");
  EXPECT_NE(response.body.find("because"), std::string::npos);
  response = refuse(v1::Refused::DRAINING, 1000);
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.headers.at("retry-after"), "1");
  EXPECT_EQ(refuse(v1::Refused::OUT_OF_BLOCKS, 1000).status, 503);
  response = refuse(v1::Refused::CONTEXT_OVERFLOW, 0);
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("context_length_exceeded"), std::string::npos);
  EXPECT_EQ(refuse(v1::Refused::INVALID, 0).status, 400);
  EXPECT_EQ(refuse(v1::Refused::DEBUG_ONLY, 0).status, 400);
}

TEST_F(CompletionsTest, FinishedWithoutAnAnswer) {
  StartAll();
  v1::GenerateEvent error = Finished(v1::Finished::ERROR, 0, 1, 0);
  error.mutable_finished()->set_error("logits are not finite");
  Script({Started(0, 1), error});
  EXPECT_EQ(Refusal(Chat(), 500).at("message"), "logits are not finite");
  const Events events = Stream(Chat({{"stream", true}}));
  EXPECT_EQ(events.errors.size(), 1u);
  EXPECT_FALSE(events.done);
  Script({Started(0, 1), Tokens({'a'}),
          Finished(v1::Finished::CANCELLED, 0, 1, 1)});
  Refusal(Chat(), 503);
}

// The engine is replaced between the gateway's last look and the request.
TEST_F(CompletionsTest, IdsAreMadeAgainForANewModel) {
  timings_.engine.poll = std::chrono::hours(1);
  StartAll();
  engine_->SetStatus([](auto& status) { status.set_fingerprint("two"); });
  engine_->SetGenerator([](const auto& request, auto&, auto& writer) {
    if (request.fingerprint() != "two") {
      writer.Write(Refused(v1::Refused::MODEL_CHANGED, "another model", 0));
      return grpc::Status::OK;
    }
    writer.Write(Tokens({'2'}));
    writer.Write(Finished(v1::Finished::STOP, 0, 1, 1));
    return grpc::Status::OK;
  });
  EXPECT_EQ(Answer(Chat())["choices"][0]["message"]["content"], "2");
  EXPECT_EQ(engine_->generate_calls(), 2);
  EXPECT_EQ(engine_->tokenizer_calls(), 2);
}

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
  EXPECT_NE(overflow.at("message").get<std::string>().find(
                "exceeds the available context size"),
            std::string::npos);
  EXPECT_EQ(engine_->generate_calls(), 0);
  EXPECT_EQ(Post(kChatPath, Chat()).status, 200);
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
