// The service over a Unix socket, as a gateway sees it.
#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <semaphore>
#include <string>
#include <vector>

#include "engine/model/testing/temp_folder.h"
#include "engine/server.h"
#include "engine/service/convert.h"
#include "engine/service/engine_service.h"
#include "engine/testing/test_engine.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "holdfast/v1/engine.grpc.pb.h"
#include "shared/tokenizer_proto.h"

namespace holdfast::engine {
namespace {

using testing::FakeBackend;
using testing::FakeModel;
using testing::FakeTokenizer;
using ::testing::HasSubstr;
using testing::kFakeEos;
using testing::MakeState;
using testing::SomeIds;

constexpr int kBlocks = 16;
constexpr std::chrono::seconds kGiveUp{30};

TEST(ConvertTest, TheTurnIsTheFirstAnswerToTheLastUserMessage) {
  v1::GenerateRequest proto;
  for (int i = 0; i < 100; ++i) proto.add_prompt_ids(i);
  EXPECT_EQ(FromProto(proto)->turn, 0);
  const auto add = [&proto](std::uint32_t position, v1::Role role) {
    v1::MessagePosition* message = proto.add_messages();
    message->set_position_tokens(position);
    message->set_role(role);
  };
  add(0, v1::ROLE_SYSTEM);
  add(10, v1::ROLE_USER);
  EXPECT_EQ(FromProto(proto)->turn, 0);
  add(20, v1::ROLE_ASSISTANT);
  EXPECT_EQ(FromProto(proto)->turn, 20);
  add(30, v1::ROLE_TOOL);
  add(40, v1::ROLE_ASSISTANT);
  EXPECT_EQ(FromProto(proto)->turn, 20);
  add(50, v1::ROLE_USER);
  add(60, v1::ROLE_ASSISTANT);
  add(70, v1::ROLE_TOOL);
  add(80, v1::ROLE_ASSISTANT);
  EXPECT_EQ(FromProto(proto)->turn, 60);
  EXPECT_THAT(FromProto(proto)->messages,
              ::testing::ElementsAre(10, 20, 40, 50, 60, 80));
}

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() {
    v1::EngineStatus loading;
    loading.set_model_path("fake.gguf");
    service_ = std::make_unique<EngineService>(loading);
    auto server = StartServer(folder_.File("engine.sock"), service_.get());
    EXPECT_TRUE(server.ok()) << server.status().message();
    server_ = *std::move(server);
    stub_ = v1::Engine::NewStub(
        grpc::CreateChannel("unix:" + folder_.File("engine.sock"),
                            grpc::InsecureChannelCredentials()));
  }
  ~ServiceTest() override {
    server_->Shutdown(std::chrono::system_clock::now() + kGiveUp);
    scheduler_.reset();
  }

  void Serve(bool debug = true) {
    memory_ = AllocateAligned(kBlocks * model_.layout().BlockBytes());
    scheduler_ = std::make_unique<Scheduler>(
        MakeState(model_, backend_, memory_.get(), kBlocks, FakeTokenizer()),
        Scheduler::Options{.max_queue = 4, .debug = debug});
    v1::EngineStatus status;
    status.set_model_name("fake");
    status.set_fingerprint(std::string("\1\2\3") + std::string(29, '\0'));
    service_->Serve({.scheduler = scheduler_.get(),
                     .status = status,
                     .tokenizer = FakeTokenizer(),
                     .cache_link = [] { return v1::CacheServiceLink(); },
                     .responses = responses_.get()});
  }

  static v1::GenerateRequest MakeRequest(const std::vector<std::int32_t>& ids,
                                         int max_tokens) {
    v1::GenerateRequest request;
    request.set_request_id("test");
    request.mutable_prompt_ids()->Add(ids.begin(), ids.end());
    request.set_max_tokens(max_tokens);
    request.set_ignore_eos(true);
    return request;
  }
  std::vector<v1::GenerateEvent> Generate(const v1::GenerateRequest& request,
                                          grpc::Status* status = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kGiveUp);
    auto stream = stub_->Generate(&context, request);
    std::vector<v1::GenerateEvent> events;
    for (v1::GenerateEvent event; stream->Read(&event);) {
      events.push_back(event);
    }
    const grpc::Status end = stream->Finish();
    if (status != nullptr) {
      *status = end;
    } else {
      EXPECT_TRUE(end.ok()) << end.error_message();
    }
    return events;
  }
  v1::EngineStatus Status() {
    grpc::ClientContext context;
    v1::EngineStatus status;
    EXPECT_TRUE(stub_->Status(&context, {}, &status).ok());
    return status;
  }

  v1::EngineStats Stats() {
    grpc::ClientContext context;
    v1::EngineStats stats;
    EXPECT_TRUE(stub_->Stats(&context, {}, &stats).ok());
    return stats;
  }
  v1::ClearCacheResponse Clear(bool pool, bool responses) {
    grpc::ClientContext context;
    v1::ClearCacheRequest request;
    request.set_pool(pool);
    request.set_responses(responses);
    v1::ClearCacheResponse cleared;
    EXPECT_TRUE(stub_->ClearCache(&context, request, &cleared).ok());
    return cleared;
  }

  FakeModel model_;
  FakeBackend backend_;
  AlignedBytes memory_;
  const model::testing::TempFolder folder_;
  std::unique_ptr<ResponseCache> responses_;  // null: off
  std::unique_ptr<EngineService> service_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Engine::Stub> stub_;
};

std::vector<std::uint32_t> Ids(const std::vector<v1::GenerateEvent>& events) {
  std::vector<std::uint32_t> ids;
  for (const v1::GenerateEvent& event : events) {
    for (const auto& token : event.tokens().tokens()) ids.push_back(token.id());
  }
  return ids;
}

TEST_F(ServiceTest, AnswersWhileItLoads) {
  EXPECT_EQ(Status().state(), v1::EngineStatus::LOADING);
  EXPECT_EQ(Status().model_path(), "fake.gguf");
  grpc::Status status;
  EXPECT_TRUE(Generate(MakeRequest({1}, 1), &status).empty());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("loading"));
  Serve();
  EXPECT_EQ(Status().state(), v1::EngineStatus::SERVING);
  EXPECT_EQ(Generate(MakeRequest({1}, 1)).back().finished().reason(),
            v1::Finished::LENGTH);
}

TEST_F(ServiceTest, StreamsProgressStartTokensEnd) {
  Serve();
  v1::GenerateRequest request = MakeRequest(SomeIds(700, 1), 40);
  request.set_digest(true);
  request.set_top_logprobs(2);
  const auto events = Generate(request);
  ASSERT_GE(events.size(), 4u);
  EXPECT_TRUE(events.front().has_progress());
  const auto started = std::ranges::find_if(
      events, [](const auto& event) { return event.has_started(); });
  ASSERT_NE(started, events.end());
  EXPECT_EQ(started->started().cache().miss_reason(), "cold");
  EXPECT_EQ((started - 1)->progress().done_tokens(), 700u);
  EXPECT_EQ((started + 1)->tokens().tokens(0).top_size(), 2);
  EXPECT_TRUE((started + 1)->tokens().tokens(0).has_logprob());
  const v1::Finished& end = events.back().finished();
  EXPECT_EQ(end.reason(), v1::Finished::LENGTH);
  EXPECT_EQ(end.prompt_tokens(), 700u);
  EXPECT_EQ(end.output_tokens(), 40u);
  EXPECT_EQ(end.digests().first_logits().size(), 32u);
  EXPECT_TRUE(end.digests().resumed().empty());
  EXPECT_EQ(Ids(events).size(), 40u);

  const auto again = Generate(request);
  EXPECT_EQ(Ids(again), Ids(events));
  const v1::Finished& warm = again.back().finished();
  EXPECT_EQ(warm.cache().cache_source(), "resident");
  EXPECT_EQ(warm.cache().anchor(), "prompt_end");
  EXPECT_EQ(warm.cache().resumed_at_tokens(), 700u);
  EXPECT_EQ(warm.cache().cached_tokens_by_source().at("resident"), 700u);
  EXPECT_EQ(warm.cache().computed_tokens(), 0u);
  EXPECT_EQ(warm.digests().end(), end.digests().end());
  EXPECT_EQ(warm.digests().first_logits(), end.digests().first_logits());
  EXPECT_EQ(warm.digests().resumed().size(), 32u);
}

TEST_F(ServiceTest, TheWordsOfAThinkingBudgetAreHidden) {
  Serve();
  v1::GenerateRequest request = MakeRequest(SomeIds(20, 1), 6);
  v1::ThinkingBudget& budget = *request.mutable_thinking_budget();
  budget.set_tokens(2);
  budget.set_open(true);
  budget.set_open_tag("<think>");
  budget.set_close_tag("</think>");
  budget.set_close_id(257);
  budget.add_words('x');
  budget.add_words(257);
  std::vector<bool> hidden;
  const auto events = Generate(request);
  for (const v1::GenerateEvent& event : events) {
    for (const auto& token : event.tokens().tokens()) {
      hidden.push_back(token.hidden());
    }
  }
  EXPECT_EQ(hidden, (std::vector{false, false, true, true, false, false}));
  EXPECT_EQ(Ids(events)[2], 'x');
  EXPECT_EQ(Ids(events)[3], 257u);
  budget.clear_words();
  EXPECT_EQ(Generate(request).back().refused().reason(), v1::Refused::INVALID);
}

TEST_F(ServiceTest, RefusalsAreEvents) {
  Serve(/*debug=*/false);
  const auto refused = [&](const v1::GenerateRequest& request) {
    const auto events = Generate(request);
    EXPECT_EQ(events.size(), 1u);
    return events.front().refused();
  };
  EXPECT_EQ(refused(MakeRequest(SomeIds(4096, 1), 1)).reason(),
            v1::Refused::CONTEXT_OVERFLOW);
  EXPECT_EQ(refused(MakeRequest({}, 1)).reason(), v1::Refused::INVALID);
  v1::GenerateRequest request = MakeRequest({1}, 1);
  request.set_force(true);
  EXPECT_EQ(refused(request).reason(), v1::Refused::DEBUG_ONLY);
  request = MakeRequest({1}, 1);
  request.set_fingerprint("another");
  EXPECT_EQ(refused(request).reason(), v1::Refused::MODEL_CHANGED);
  request.set_fingerprint(Status().fingerprint());
  EXPECT_TRUE(Generate(request).back().has_finished());
  request.set_cache_mode(static_cast<v1::CacheMode>(17));
  EXPECT_THAT(refused(request).message(), HasSubstr("cache_mode 17"));
  request = MakeRequest({1, 2}, 1);
  request.add_messages()->set_position_tokens(2);
  EXPECT_THAT(refused(request).message(), HasSubstr("position 2"));
  request = MakeRequest({1}, 1);
  request.mutable_prompt_ids()->Set(0, 0xffffffff);
  EXPECT_THAT(refused(request).message(), HasSubstr("prompt_ids"));
}

TEST_F(ServiceTest, MessagesOfUserAndAssistantGetAnchors) {
  v1::GenerateRequest proto = MakeRequest(SomeIds(50, 1), 1);
  const auto add = [&proto](int position, v1::Role role) {
    v1::MessagePosition* message = proto.add_messages();
    message->set_position_tokens(position);
    message->set_role(role);
  };
  add(0, v1::ROLE_SYSTEM);
  add(10, v1::ROLE_USER);
  add(20, v1::ROLE_ASSISTANT);
  add(30, v1::ROLE_TOOL);
  add(40, v1::ROLE_ASSISTANT);
  const auto request = FromProto(proto);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->messages, (std::vector<int>{10, 20, 40}));
}

// The model makes a step only when the test lets it, so the request cannot end
// by itself before the server has heard that its client has gone.
TEST_F(ServiceTest, AClientThatGoesCancelsItsRequest) {
  constexpr int kTokens = 1000;
  std::counting_semaphore<> steps(0);
  std::promise<void> running;
  model_.before_forward = [&](int position, int) {
    if (position == 0) running.set_value();
    EXPECT_TRUE(steps.try_acquire_for(kGiveUp));
  };
  Serve();
  grpc::ClientContext context;
  auto stream = stub_->Generate(&context, MakeRequest(SomeIds(9, 1), kTokens));
  ASSERT_EQ(running.get_future().wait_for(kGiveUp), std::future_status::ready);
  context.TryCancel();
  v1::GenerateEvent event;
  while (stream->Read(&event)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  int allowed = 0;
  while (Status().running_requests() > 0 && allowed < kTokens) {
    steps.release();
    ++allowed;
  }
  EXPECT_LT(allowed, kTokens);
  EXPECT_LT(model_.rows_forwarded(), kTokens);
}

// Nobody takes anything: what is kept has a bound, and the request is told.
TEST(GenerateStreamTest, KeepsABoundedAmountForASlowClient) {
  GenerateStream stream;
  OutputToken token{.id = 7, .logprobs = Logprobs{}};
  token.logprobs->top.resize(20);
  std::size_t taken = 0;
  while (stream.OnToken(token) && taken < GenerateStream::kMaxPendingBytes) {
    ++taken;
  }
  EXPECT_GT(taken, 10000u);
  EXPECT_LT(taken, 20000u);
}

TEST_F(ServiceTest, TheTokenizerTravelsInParts) {
  Serve();
  grpc::ClientContext context;
  auto stream = stub_->GetTokenizer(&context, {});
  std::string bytes;
  v1::TokenizerPart part;
  while (stream->Read(&part)) {
    bytes += part.data();
    EXPECT_EQ(part.fingerprint(), Status().fingerprint());
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(part.total_bytes(), bytes.size());
  v1::Tokenizer proto;
  ASSERT_TRUE(proto.ParseFromString(bytes));
  const auto spec = ::holdfast::FromProto(proto);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->tokens, FakeTokenizer().tokens);
  EXPECT_EQ(spec->eos_ids, (std::vector<std::uint32_t>{kFakeEos}));
}

TEST_F(ServiceTest, MetricsAndDrain) {
  Serve();
  Generate(MakeRequest({1, 2}, 1));
  grpc::ClientContext metrics_context;
  v1::EngineMetrics metrics;
  ASSERT_TRUE(stub_->Metrics(&metrics_context, {}, &metrics).ok());
  EXPECT_THAT(metrics.prometheus_text(),
              HasSubstr("holdfast_prompt_tokens_total"));
  grpc::ClientContext drain_context;
  v1::DrainRequest drain;
  drain.set_deadline_ms(1000);
  v1::DrainResponse drained;
  ASSERT_TRUE(stub_->Drain(&drain_context, drain, &drained).ok());
  EXPECT_EQ(Status().state(), v1::EngineStatus::DRAINING);
  EXPECT_EQ(Generate(MakeRequest({1}, 1)).front().refused().reason(),
            v1::Refused::DRAINING);
}

TEST_F(ServiceTest, ASecondServerCannotTakeTheSocket) {
  auto second = StartServer(folder_.File("engine.sock"), service_.get());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("engine.sock: another process serves it (pid "));
}

// The records of session "s", as a gateway gets them.
v1::GetRecordsResponse Records(v1::Engine::Stub& stub,
                               v1::GetRecordsRequest request) {
  request.set_session_key("s");
  grpc::ClientContext context;
  v1::GetRecordsResponse response;
  const grpc::Status status = stub.GetRecords(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

TEST_F(ServiceTest, RecordsOfASession) {
  Serve();
  v1::GenerateRequest request = MakeRequest({1, 2, 3}, 4);
  request.set_session_key("s");
  request.set_record_ticket(99);
  const auto output = Ids(Generate(request));
  auto records = Records(*stub_, {});
  ASSERT_EQ(records.branches_size(), 1);
  EXPECT_EQ(records.branches(0).record().ids_size(), 7);
  EXPECT_EQ(records.branches(0).record().ids(6), output.back());
  EXPECT_EQ(records.branches(0).record().end_tokens(), 6u);

  v1::RecordTurnRequest told;
  told.set_session_key("s");
  told.set_record_ticket(99);
  told.mutable_turn()->set_begin_tokens(3);
  told.mutable_turn()->set_end_tokens(7);
  told.mutable_turn()->mutable_content()->set_text("Yes.");
  grpc::ClientContext context;
  v1::RecordTurnResponse answer;
  ASSERT_TRUE(stub_->RecordTurn(&context, told, &answer).ok());
  EXPECT_TRUE(answer.recorded());
  const auto newer = Records(*stub_, {});
  ASSERT_EQ(newer.branches(0).record().turns_size(), 1);
  EXPECT_EQ(newer.branches(0).record().turns(0).content().text(), "Yes.");
  EXPECT_NE(newer.branches(0).revision(), records.branches(0).revision());

  // What the gateway has is not sent again.
  v1::GetRecordsRequest known;
  auto* branch = known.add_known();
  branch->set_branch(newer.branches(0).branch());
  branch->set_revision(newer.branches(0).revision());
  EXPECT_FALSE(Records(*stub_, known).branches(0).has_record());
  // Another tenant's session of the same name is another session.
  v1::GetRecordsRequest salted;
  salted.set_salt("tenant");
  EXPECT_EQ(Records(*stub_, salted).branches_size(), 0);
}

TEST_F(ServiceTest, WhatLeavesNoTraceIsNotRecorded) {
  Serve();
  v1::GenerateRequest request = MakeRequest({1, 2, 3}, 4);
  (void)Generate(request);  // nobody's session
  request.set_session_key("s");
  request.set_cache_mode(v1::CACHE_MODE_BYPASS);
  (void)Generate(request);
  request.set_cache_mode(v1::CACHE_MODE_READ_ONLY);
  (void)Generate(request);
  EXPECT_EQ(Records(*stub_, {}).branches_size(), 0);
  request.set_cache_mode(v1::CACHE_MODE_DEFAULT);
  (void)Generate(request);
  EXPECT_EQ(Records(*stub_, {}).branches_size(), 1);
  grpc::ClientContext context;
  v1::ClearCacheResponse cleared;
  ASSERT_TRUE(stub_->ClearCache(&context, {}, &cleared).ok());
  EXPECT_EQ(Records(*stub_, {}).branches_size(), 0);
}

TEST_F(ServiceTest, StatsOfRequests) {
  Serve();
  Generate(MakeRequest(SomeIds(700, 1), 4));
  Generate(MakeRequest(SomeIds(700, 1), 4));
  Generate(MakeRequest({}, 4));
  const v1::EngineStats stats = Stats();
  EXPECT_EQ(stats.prompt_tokens_by_source().at("computed"), 700u);
  EXPECT_EQ(stats.prompt_tokens_by_source().at("resident"), 700u);
  EXPECT_EQ(stats.recent().requests(), 2u);
  EXPECT_EQ(stats.recent().queried_tokens(), 1400u);
  EXPECT_EQ(stats.recent().hit_tokens(), 700u);
  EXPECT_EQ(stats.refused_by_reason().at("invalid"), 1u);
  EXPECT_EQ(stats.pool_blocks(), static_cast<std::uint64_t>(kBlocks));
  EXPECT_EQ(stats.preemptions(), 0u);
  ASSERT_EQ(stats.evictions_by_age_size(), 7);
  EXPECT_EQ(stats.evictions_by_age(0).at_most_s(), 1);
  EXPECT_EQ(stats.evictions_by_age(6).at_most_s(), 0);
  EXPECT_FALSE(stats.has_responses());
  EXPECT_EQ(Clear(false, true).blocks(), 0u);
  EXPECT_GT(Clear(true, false).blocks(), 0u);
}

TEST_F(ServiceTest, AnIdenticalGreedyRequestGetsTheSameStream) {
  responses_ = std::make_unique<ResponseCache>(Sha256Digest{1, 2, 3}, 1 << 20);
  Serve();
  v1::GenerateRequest request = MakeRequest(SomeIds(700, 1), 20);
  request.set_top_logprobs(2);
  request.set_salt("a");
  const auto first = Generate(request);
  const int forwards = model_.forwards();
  request.set_request_id("another");
  const auto again = Generate(request);
  EXPECT_EQ(model_.forwards(), forwards);
  const auto tokens = [](const std::vector<v1::GenerateEvent>& events) {
    v1::Tokens all;
    for (const v1::GenerateEvent& event : events) all.MergeFrom(event.tokens());
    return all.SerializeAsString();
  };
  EXPECT_EQ(tokens(again), tokens(first));
  const v1::Finished& end = again.back().finished();
  EXPECT_EQ(end.reason(), first.back().finished().reason());
  EXPECT_EQ(end.output_tokens(), 20u);
  EXPECT_EQ(end.prompt_tokens(), 700u);
  EXPECT_EQ(end.cache().cache_source(), "response");
  EXPECT_EQ(end.cache().cached_tokens_by_source().at("response"), 700u);
  EXPECT_EQ(end.cache().computed_tokens(), 0u);
  EXPECT_EQ(again.front().started().cache().cache_source(), "response");
  EXPECT_EQ(Stats().responses().hits(), 1u);
  EXPECT_EQ(Stats().prompt_tokens_by_source().at("response"), 700u);

  // What it must not answer.
  v1::GenerateRequest other = request;
  other.set_salt("b");
  EXPECT_EQ(Generate(other).back().finished().cache().cache_source(), "none");
  other = request;
  other.set_cache_mode(v1::CACHE_MODE_BYPASS);
  EXPECT_EQ(Generate(other).back().finished().cache().miss_reason(), "bypass");
  other = request;
  other.set_fingerprint(std::string(32, 'x'));
  EXPECT_EQ(Generate(other).back().refused().reason(),
            v1::Refused::MODEL_CHANGED);
  // Emptying the pool leaves it, emptying it leaves the pool.
  EXPECT_EQ(Clear(true, false).responses(), 0u);
  EXPECT_EQ(Generate(request).back().finished().cache().cache_source(),
            "response");
  EXPECT_EQ(Clear(false, true).responses(), 2u);
  EXPECT_EQ(Generate(request).back().finished().cache().cache_source(), "none");
}

}  // namespace
}  // namespace holdfast::engine
