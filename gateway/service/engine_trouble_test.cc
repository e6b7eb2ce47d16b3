// Completions while the engine is away, dies, refuses or changes.
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

class EngineTroubleTest : public CompletionsTest {};

TEST_F(EngineTroubleTest, ClientThatLeavesWhileTheEngineIsAbsent) {
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

TEST_F(EngineTroubleTest, AbsentEngineGives503) {
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

TEST_F(EngineTroubleTest, WaitsForTheEngine) {
  StartGateway();
  const auto client = Connect();
  client->SendRequest("POST", kChatPath, Chat().dump());
  StartEngine();
  EXPECT_EQ(client->ReadResponse().status, 200);
}

TEST_F(EngineTroubleTest, EngineThatDiesInMidStream) {
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

TEST_F(EngineTroubleTest, EngineThatDiesBeforeTheAnswer) {
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
TEST_F(EngineTroubleTest, RequestRightAfterTheEngineDied) {
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

TEST_F(EngineTroubleTest, Refusals) {
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

// The engine stops, and the gateway has not noticed when the request comes.
TEST_F(EngineTroubleTest, WaitsForTheEngineThatFollowsOneThatStops) {
  timings_.engine.poll = std::chrono::hours(1);
  StartAll();
  engine_->SetStatus(
      [](auto& status) { status.set_state(v1::EngineStatus::DRAINING); });
  Script({Refused(v1::Refused::DRAINING, "the engine is stopping", 1000)});
  const auto client = Connect();
  client->SendRequest("POST", kChatPath, Chat().dump());
  for (int i = 0; i < 2000 && Get("/health").status == 200; ++i) continue;
  engine_->Kill();
  MakeEngine("one");
  StartEngine();
  EXPECT_EQ(client->ReadResponse().status, 200);
}

TEST_F(EngineTroubleTest, FinishedWithoutAnAnswer) {
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
TEST_F(EngineTroubleTest, IdsAreMadeAgainForANewModel) {
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

}  // namespace
}  // namespace holdfast::gateway::testing
