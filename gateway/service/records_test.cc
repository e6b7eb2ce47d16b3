// Session records over HTTP: what the gateway tells the engine of its answers,
// and what it serves of what it was told.
#include <string>
#include <vector>

#include "gateway/service/testing/gateway_fixture.h"
#include "gtest/gtest.h"
#include "holdfast/v1/record.pb.h"

namespace holdfast::gateway {
namespace {

using testing::Bytes;
using testing::FakeEngine;
using testing::GatewayTest;
using testing::json;
using testing::kImEnd;
using testing::kImStart;

using Ids = std::vector<std::uint32_t>;

Ids Joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// <|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n
Ids FirstPrompt() {
  Ids ids = {kImStart};
  ids = Joined(ids, Bytes("user\nHello"));
  ids.push_back(kImEnd);
  ids.push_back('\n');
  ids.push_back(kImStart);
  return Joined(ids, Bytes("assistant\n"));
}

Ids Sent(const v1::GenerateRequest& request) {
  return {request.prompt_ids().begin(), request.prompt_ids().end()};
}

class RecordsTest : public GatewayTest {
 protected:
  // The engine says "Hi!"; `output` are the ids of it.
  void Say(Ids output, v1::Finished::Reason reason = v1::Finished::STOP) {
    engine_->SetGenerator([=](const auto& request, auto&, auto& writer) {
      const auto prompt = static_cast<std::uint32_t>(request.prompt_ids_size());
      writer.Write(testing::Started(0, prompt));
      writer.Write(testing::Tokens(output));
      writer.Write(testing::Finished(
          reason, 0, prompt, static_cast<std::uint32_t>(output.size())));
      return grpc::Status::OK;
    });
  }
  static json Session(const json& more = json::object()) {
    json body = Chat({{"session_id", "s"}, {"temperature", 0}});
    body.update(more);
    return body;
  }
  static json NextTurn(const std::string& answer) {
    return Session({{"messages",
                     {{{"role", "user"}, {"content", "Hello"}},
                      {{"role", "assistant"}, {"content", answer}},
                      {{"role", "user"}, {"content", "And?"}}}}});
  }
  // The first prompt, "Hi", a hidden token, "!".
  v1::GetRecordsResponse Recorded(std::uint64_t revision = 1) {
    v1::GetRecordsResponse response;
    auto* branch = response.add_branches();
    branch->set_branch(1);
    branch->set_revision(revision);
    v1::SessionRecord* record = branch->mutable_record();
    record->set_version(1);
    const Ids ids = Joined(FirstPrompt(), {'H', 'i', kHidden, '!'});
    record->mutable_ids()->Add(ids.begin(), ids.end());
    record->set_end_tokens(static_cast<std::uint32_t>(ids.size()));
    v1::SentTurn* turn = record->add_turns();
    const auto end = static_cast<std::uint32_t>(ids.size());
    turn->set_begin_tokens(end - 5);  // a line break is in front
    turn->set_opening_end_tokens(end - 4);
    turn->set_end_tokens(end);
    turn->mutable_content()->set_text("Hi!");
    v1::HiddenSpan* hidden = turn->add_hidden();
    hidden->set_kind(v1::HiddenSpan::END_OF_TURN);
    hidden->set_begin_tokens(end - 2);
    hidden->set_end_tokens(end - 1);
    return response;
  }
  static constexpr std::uint32_t kHidden = kImStart;
};

TEST_F(RecordsTest, TellsWhatItSent) {
  StartAll();
  ASSERT_EQ(Post("/v1/chat/completions", Session()).status, 200);
  ASSERT_EQ(engine_->told().size(), 1u);
  const v1::RecordTurnRequest told = engine_->told()[0];
  EXPECT_EQ(told.session_key(), "s");
  EXPECT_NE(told.record_ticket(), 0u);
  EXPECT_EQ(told.record_ticket(), engine_->last_request().record_ticket());
  const auto prompt = static_cast<std::uint32_t>(FirstPrompt().size());
  EXPECT_EQ(told.turn().begin_tokens(), prompt - 1);
  EXPECT_EQ(told.turn().opening_end_tokens(), prompt);
  EXPECT_EQ(told.turn().end_tokens(), prompt + 3);
  EXPECT_EQ(told.turn().content().text(), "Hi!");
  EXPECT_EQ(told.turn().hidden_size(), 0);
}

TEST_F(RecordsTest, OfAStreamToo) {
  StartAll();
  Say({'H', 'i', '!'}, v1::Finished::LENGTH);
  ASSERT_EQ(Post("/v1/chat/completions", Session({{"stream", true}})).status,
            200);
  ASSERT_EQ(engine_->told().size(), 1u);
  const v1::SentTurn turn = engine_->told()[0].turn();
  EXPECT_EQ(turn.content().text(), "Hi!");
  EXPECT_EQ(turn.end_tokens(), FirstPrompt().size() + 3);
}

TEST_F(RecordsTest, WhatAStopStringWithheldIsHidden) {
  StartAll();
  Say({'H', 'i', '\n', '#', '#'}, v1::Finished::STOP_STRING);
  ASSERT_EQ(Post("/v1/chat/completions", Session({{"stop", "\n##"}})).status,
            200);
  const v1::SentTurn turn = engine_->told().at(0).turn();
  EXPECT_EQ(turn.content().text(), "Hi");
  const auto prompt = static_cast<std::uint32_t>(FirstPrompt().size());
  EXPECT_EQ(turn.end_tokens(), prompt + 4);  // what was forwarded
  ASSERT_EQ(turn.hidden_size(), 1);
  EXPECT_EQ(turn.hidden(0).kind(), v1::HiddenSpan::STOP_STRING);
  EXPECT_EQ(turn.hidden(0).begin_tokens(), prompt + 2);
  EXPECT_EQ(turn.content().gaps_size(), 1);
}

TEST_F(RecordsTest, WhatLeavesNoTraceIsNotRecorded) {
  StartAll();
  for (const char* mode : {"bypass", "read_only"}) {
    EXPECT_EQ(
        Post("/v1/chat/completions", Session({{"holdfast", {{"cache", mode}}}}))
            .status,
        200);
    EXPECT_EQ(engine_->last_request().record_ticket(), 0u);
  }
  EXPECT_EQ(Post("/v1/completions", json{{"prompt", "x"}, {"session_id", "s"}})
                .status,
            200);
  EXPECT_TRUE(engine_->told().empty());
  // read_only asks, and says that it is no use.
  ASSERT_EQ(engine_->asked().size(), 1u);
  EXPECT_TRUE(engine_->asked()[0].peek());
}

TEST_F(RecordsTest, ServesTheRecordsTokens) {
  StartAll();
  engine_->SetRecords(Recorded());
  const auto reply = Post("/v1/chat/completions", NextTurn("Hi!"));
  ASSERT_EQ(reply.status, 200);
  const json report = json::parse(reply.body).at("holdfast");
  EXPECT_EQ(report.at("aligned"), json({"hidden_span"}));
  const Ids record = Joined(FirstPrompt(), {'H', 'i', kHidden, '!', kImEnd});
  const Ids served = Sent(engine_->last_request());
  ASSERT_GT(served.size(), record.size());
  EXPECT_TRUE(std::equal(record.begin(), record.end(), served.begin()));
  // The next answer is recorded against the served tokens.
  EXPECT_EQ(engine_->told().back().turn().opening_end_tokens(), served.size());
}

TEST_F(RecordsTest, AnEditedCopyIsServedAsSent) {
  StartAll();
  engine_->SetRecords(Recorded());
  const auto reply = Post("/v1/chat/completions", NextTurn("Hi?"));
  EXPECT_EQ(json::parse(reply.body).at("holdfast").at("aligned"),
            json::array());
  const Ids served = Sent(engine_->last_request());
  const Ids rendered = Joined(FirstPrompt(), {'H', 'i', '?', kImEnd});
  EXPECT_TRUE(std::equal(rendered.begin(), rendered.end(), served.begin()));
}

TEST_F(RecordsTest, AlignmentCanBeOff) {
  StartAll();
  engine_->SetRecords(Recorded());
  json body = NextTurn("Hi!");
  body["holdfast"] = {{"align", "off"}};
  EXPECT_EQ(Post("/v1/chat/completions", body).status, 200);
  EXPECT_TRUE(engine_->asked().empty());
  const Ids rendered = Joined(FirstPrompt(), {'H', 'i', '!', kImEnd});
  const Ids served = Sent(engine_->last_request());
  EXPECT_TRUE(std::equal(rendered.begin(), rendered.end(), served.begin()));
}

TEST_F(RecordsTest, AlignmentCanBeOffForAll) {
  config_.end_align = false;
  StartAll();
  EXPECT_EQ(Post("/v1/chat/completions", NextTurn("Hi!")).status, 200);
  EXPECT_TRUE(engine_->asked().empty());
  EXPECT_EQ(engine_->told().size(), 1u);  // recorded all the same
}

TEST_F(RecordsTest, ARecordThatIsKnownDoesNotTravelAgain) {
  StartAll();
  engine_->SetRecords(Recorded());
  EXPECT_EQ(Post("/v1/chat/completions", NextTurn("Hi!")).status, 200);
  EXPECT_EQ(engine_->asked()[0].known_size(), 0);
  v1::GetRecordsResponse same = Recorded();
  same.mutable_branches(0)->clear_record();
  engine_->SetRecords(same);
  const auto reply = Post("/v1/chat/completions", NextTurn("Hi!"));
  EXPECT_EQ(json::parse(reply.body).at("holdfast").at("aligned"),
            json({"hidden_span"}));
  ASSERT_EQ(engine_->asked()[1].known_size(), 1);
  EXPECT_EQ(engine_->asked()[1].known(0).revision(), 1u);
  // Of another tenant nothing is known.
  json other = NextTurn("Hi!");
  other["cache_salt"] = "b";
  EXPECT_EQ(Post("/v1/chat/completions", other).status, 200);
  EXPECT_EQ(engine_->asked()[2].known_size(), 0);
  EXPECT_EQ(engine_->asked()[2].salt(), "b");
}

TEST_F(RecordsTest, WhenTheClientGoesWhatItGotIsTold) {
  StartAll();
  engine_->SetGenerator([](const auto& request, auto& context, auto& writer) {
    writer.Write(testing::Started(
        0, static_cast<std::uint32_t>(request.prompt_ids_size())));
    writer.Write(testing::Tokens({'H', 'i'}));
    testing::WaitForCancel(context);
    return grpc::Status::CANCELLED;
  });
  {
    const auto client = Connect();
    client->SendRequest("POST", "/v1/chat/completions",
                        Session({{"stream", true}}).dump());
    (void)client->ReadUntil("\"Hi\"");
  }
  for (int i = 0; i < 2000 && engine_->told().empty(); ++i) {
    (void)Get("/health");
  }
  ASSERT_EQ(engine_->told().size(), 1u);
  EXPECT_EQ(engine_->told()[0].turn().content().text(), "Hi");
}

}  // namespace
}  // namespace holdfast::gateway
