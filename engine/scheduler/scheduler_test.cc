#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "engine/testing/test_engine.h"
#include "engine/testing/tier_node.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine::testing {
namespace {

using ::testing::HasSubstr;
using Reason = Refusal::Reason;

constexpr std::chrono::seconds kGiveUp{30};
constexpr int kBlocks = 8;

// An engine whose first step waits until the test lets it go on.
class SchedulerTest : public ::testing::Test {
 protected:
  void Start(int max_queue, bool debug = true, int seats = 1,
             bool tiers = false) {
    model_.before_forward = [this](int, int) {
      if (std::exchange(waits_, false)) {
        running_.set_value();
        EXPECT_EQ(go_on_.get_future().wait_for(kGiveUp),
                  std::future_status::ready);
      }
    };
    memory_ = AllocateAligned(kBlocks * model_.layout().BlockBytes());
    auto state = MakeState(model_, backend_, memory_.get(), kBlocks,
                           FakeTokenizer(), /*max_rows=*/512, /*anchors=*/32,
                           /*kept=*/{}, seats);
    if (tiers) {
      tiers_ = std::make_unique<FakeTiers>(state->pool);
      tiers_->image_bytes = StateImageBytes(model_.layout());
      costs_ = *ParsePlannerCosts(kCheapTiers);
      state->tiering = std::make_unique<Tiering>(
          *tiers_, *costs_, reinterpret_cast<std::byte*>(leases_.data()),
          state->pool);
    }
    scheduler_ = std::make_unique<Scheduler>(
        std::move(state),
        Scheduler::Options{.max_queue = max_queue, .debug = debug});
  }
  struct Submitted {
    std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
    std::shared_ptr<Job> job;
  };
  Submitted Submit(Request request) {
    Submitted submitted;
    submitted.job = std::make_shared<Job>(std::move(request), submitted.sink);
    scheduler_->Submit(submitted.job);
    return submitted;
  }
  // Submits a request and returns when its first step runs.
  Submitted SubmitAndHold(Request request) {
    Submitted submitted = Submit(std::move(request));
    EXPECT_EQ(running_.get_future().wait_for(kGiveUp),
              std::future_status::ready);
    return submitted;
  }

  FakeModel model_;
  FakeBackend backend_;
  AlignedBytes memory_;
  bool waits_ = true;
  std::promise<void> running_;
  std::promise<void> go_on_;
  std::unique_ptr<FakeTiers> tiers_;
  std::unique_ptr<PlannerCosts> costs_;
  std::vector<std::uint64_t> leases_ =
      std::vector<std::uint64_t>(kLeaseTableBytes / 8);
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, RunsRequestsInOrder) {
  Start(8);
  const auto first = SubmitAndHold(MakeRequest(SomeIds(100, 1)));
  const auto second = Submit(MakeRequest(SomeIds(100, 2)));
  const auto third = Submit(MakeRequest(SomeIds(100, 1)));
  EXPECT_EQ(scheduler_->gauges().running, 1);
  EXPECT_EQ(scheduler_->gauges().waiting, 2);
  go_on_.set_value();
  ASSERT_TRUE(third.sink->WaitForEnd());
  EXPECT_TRUE(first.sink->ended());
  EXPECT_TRUE(second.sink->ended());
  EXPECT_EQ(third.sink->result()->reason, FinishReason::kLength);
  EXPECT_EQ(third.sink->ids, first.sink->ids);
}

TEST_F(SchedulerTest, TheQueueIsBounded) {
  Start(2);
  const auto first = SubmitAndHold(MakeRequest(SomeIds(100, 1)));
  const auto second = Submit(MakeRequest(SomeIds(100, 2)));
  const auto third = Submit(MakeRequest(SomeIds(100, 3)));
  const auto refused = Submit(MakeRequest(SomeIds(100, 4)));
  ASSERT_TRUE(refused.sink->ended());
  EXPECT_EQ(refused.sink->refusal()->reason, Reason::kQueueFull);
  EXPECT_GE(refused.sink->refusal()->retry_after_ms, 1000);
  go_on_.set_value();
  ASSERT_TRUE(third.sink->WaitForEnd());
  EXPECT_TRUE(third.sink->result().has_value());
}

TEST_F(SchedulerTest, CancelInTheQueueTouchesNobodyElse) {
  Start(8);
  const auto first = SubmitAndHold(MakeRequest(SomeIds(100, 1)));
  const auto second = Submit(MakeRequest(SomeIds(100, 2)));
  const auto third = Submit(MakeRequest(SomeIds(100, 3)));
  scheduler_->Cancel(second.job);
  ASSERT_TRUE(second.sink->ended());
  EXPECT_EQ(second.sink->result()->reason, FinishReason::kCancelled);
  EXPECT_EQ(scheduler_->gauges().waiting, 1);
  go_on_.set_value();
  ASSERT_TRUE(third.sink->WaitForEnd());
  EXPECT_EQ(first.sink->result()->reason, FinishReason::kLength);
  EXPECT_EQ(third.sink->result()->reason, FinishReason::kLength);
}

TEST_F(SchedulerTest, CancelOfTheRunningOneTakesEffectAtTheNextStep) {
  Start(8);
  const auto first = SubmitAndHold(MakeRequest(SomeIds(1500, 1)));
  scheduler_->Cancel(first.job);
  go_on_.set_value();
  ASSERT_TRUE(first.sink->WaitForEnd());
  EXPECT_EQ(first.sink->result()->reason, FinishReason::kCancelled);
  EXPECT_EQ(model_.forwards(), 1);
  scheduler_->Cancel(first.job);  // gone: nothing
}

TEST_F(SchedulerTest, DrainRefusesNewRequestsAndWaitsForTheOthers) {
  Start(8);
  const auto first = SubmitAndHold(MakeRequest(SomeIds(100, 1)));
  const auto second = Submit(MakeRequest(SomeIds(100, 2)));
  std::promise<Scheduler::DrainResult> drained;
  scheduler_->Drain(std::chrono::hours(1), std::chrono::hours(1),
                    [&](auto result) { drained.set_value(result); });
  EXPECT_TRUE(scheduler_->draining());
  const auto refused = Submit(MakeRequest(SomeIds(100, 3)));
  ASSERT_TRUE(refused.sink->ended());
  EXPECT_EQ(refused.sink->refusal()->reason, Reason::kDraining);
  go_on_.set_value();
  auto result = drained.get_future();
  ASSERT_EQ(result.wait_for(kGiveUp), std::future_status::ready);
  EXPECT_EQ(result.get().finished, 2);
  EXPECT_EQ(second.sink->result()->reason, FinishReason::kLength);
  std::promise<Scheduler::DrainResult> again;
  scheduler_->Drain(std::chrono::hours(1), std::chrono::hours(1),
                    [&](auto result) { again.set_value(result); });
  EXPECT_EQ(again.get_future().wait_for(kGiveUp), std::future_status::ready);
}

TEST_F(SchedulerTest, DrainCancelsAtItsDeadline) {
  Start(8);
  const auto first = SubmitAndHold(MakeRequest(SomeIds(1500, 1)));
  const auto second = Submit(MakeRequest(SomeIds(100, 2)));
  std::promise<Scheduler::DrainResult> drained;
  scheduler_->Drain(std::chrono::milliseconds(0), std::chrono::milliseconds(0),
                    [&](auto result) { drained.set_value(result); });
  go_on_.set_value();
  auto result = drained.get_future();
  ASSERT_EQ(result.wait_for(kGiveUp), std::future_status::ready);
  EXPECT_EQ(result.get().cancelled, 2);
  EXPECT_EQ(first.sink->result()->reason, FinishReason::kCancelled);
  EXPECT_EQ(second.sink->result()->reason, FinishReason::kCancelled);
}

// Whoever runs past the requests' time does not take the conversations' own.
TEST_F(SchedulerTest, WhatWasResidentIsStoredAfterOthersAreCancelled) {
  waits_ = false;
  Start(8, /*debug=*/true, /*seats=*/2, /*tiers=*/true);
  Request talk = MakeRequest(SomeIds(300, 1));
  talk.session_key = "a";
  ASSERT_TRUE(Submit(talk).sink->WaitForEnd());
  waits_ = true;
  const auto runs = SubmitAndHold(MakeRequest(SomeIds(700, 2)));
  std::promise<Scheduler::DrainResult> drained;
  scheduler_->Drain(std::chrono::milliseconds(0), std::chrono::hours(1),
                    [&](auto result) { drained.set_value(result); });
  go_on_.set_value();
  auto result = drained.get_future();
  ASSERT_EQ(result.wait_for(kGiveUp), std::future_status::ready);
  EXPECT_EQ(result.get().cancelled, 1);
  EXPECT_EQ(runs.sink->result()->reason, FinishReason::kCancelled);
  const auto& kept = tiers_->drained;
  EXPECT_TRUE(std::ranges::any_of(kept, [](const FakeTiers::Entry& entry) {
    return entry.session_key == "a" && entry.kind == StoredState::kEnd;
  }));
}

TEST(SpillTimeTest, IsAPartOfTheStop) {
  using std::chrono::milliseconds;
  EXPECT_EQ(SpillTime(0), milliseconds(10'000));
  EXPECT_EQ(SpillTime(6'000'000'000), milliseconds(20'000));
  EXPECT_EQ(SpillTime(18'000'000'000), milliseconds(30'000));
  EXPECT_EQ(SpillTime(60'000'000'000), milliseconds(100'000));
}

TEST_F(SchedulerTest, DestructionEndsEveryRequest) {
  Start(8);
  const auto first = SubmitAndHold(MakeRequest(SomeIds(1500, 1)));
  const auto second = Submit(MakeRequest(SomeIds(100, 2)));
  go_on_.set_value();
  scheduler_.reset();
  EXPECT_TRUE(first.sink->ended());
  EXPECT_TRUE(second.sink->ended());
}

TEST_F(SchedulerTest, CountsWhatItDid) {
  Start(8);
  waits_ = false;
  const auto first = Submit(MakeRequest(SomeIds(300, 1)));
  const auto again = Submit(MakeRequest(SomeIds(300, 1)));
  ASSERT_TRUE(again.sink->WaitForEnd());
  Submit(MakeRequest({}));
  const std::string text = scheduler_->MetricsText();
  EXPECT_THAT(
      text, HasSubstr("holdfast_prompt_tokens_total{source=\"computed\"} 300"));
  EXPECT_THAT(
      text, HasSubstr("holdfast_prompt_tokens_total{source=\"resident\"} 300"));
  EXPECT_THAT(text,
              HasSubstr("holdfast_requests_total{finish_reason=\"length\"} 2"));
  EXPECT_THAT(
      text, HasSubstr("holdfast_prefix_cache_misses_total{reason=\"cold\"} 1"));
  EXPECT_THAT(
      text, HasSubstr("holdfast_requests_refused_total{reason=\"invalid\"} 1"));
  EXPECT_THAT(text, HasSubstr("holdfast_generation_tokens_total 8"));
  EXPECT_THAT(text, HasSubstr("holdfast_prefill_tokens_total 300"));
  EXPECT_THAT(text,
              HasSubstr("holdfast_resumes_total{anchor=\"prompt_end\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("holdfast_anchors_taken_total{kind=\"prompt_end\"} 1"));
  EXPECT_THAT(text, HasSubstr("holdfast_anchors 1\n"));
}

class AdmissionTest : public ::testing::Test {
 protected:
  std::optional<Refusal> Check(const Request& request, bool debug = true) {
    return CheckRequest(request, {.vocab_size = 100,
                                  .max_context = 50,
                                  .debug = debug,
                                  .fingerprint = {9}});
  }
  Request good_ = MakeRequest({1, 2, 3});
};

TEST_F(AdmissionTest, ContextOverflowSaysWhatClientsLookFor) {
  EXPECT_FALSE(Check(MakeRequest(SomeIds(49, 1, 100))));
  const auto refusal = Check(MakeRequest(SomeIds(50, 1, 100)));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, Reason::kContextOverflow);
  EXPECT_EQ(refusal->message,
            "the request exceeds the available context size: 50 tokens, the "
            "context holds 50 (maximum context length is 50 tokens)");
  EXPECT_EQ(refusal->max_context, 50);
}

TEST_F(AdmissionTest, DebugFieldsNeedADebugEngine) {
  EXPECT_FALSE(Check(good_));
  EXPECT_EQ(Check(good_, false)->reason, Reason::kDebugOnly);
  good_.digest = false;
  EXPECT_FALSE(Check(good_, false));
  good_.forced.emplace();
  EXPECT_THAT(Check(good_, false)->message, HasSubstr("forced_ids"));
}

TEST_F(AdmissionTest, IdsOfAnotherModelAreRefused) {
  good_.fingerprint = Sha256Digest{9};
  EXPECT_FALSE(Check(good_));
  good_.fingerprint = Sha256Digest{8};
  EXPECT_EQ(Check(good_)->reason, Reason::kModelChanged);
}

TEST_F(AdmissionTest, BadParametersAreNamed) {
  const auto expect = [&](const char* field, auto change) {
    Request request = good_;
    change(request);
    const auto refusal = Check(request);
    ASSERT_TRUE(refusal) << field;
    EXPECT_EQ(refusal->reason, Reason::kInvalid);
    EXPECT_THAT(refusal->message, HasSubstr(field));
  };
  expect("prompt_ids is empty", [](Request& r) { r.prompt.clear(); });
  expect("prompt_ids holds id 100", [](Request& r) { r.prompt[1] = 100; });
  expect("forced_ids holds id -1", [](Request& r) { r.forced = {-1}; });
  expect("max_tokens", [](Request& r) { r.max_tokens = 0; });
  expect("top_logprobs", [](Request& r) { r.top_logprobs = 21; });
  expect("stop string", [](Request& r) { r.stop_strings = {""}; });
  expect("stop_strings", [](Request& r) { r.stop_strings.resize(17, "x"); });
  expect("temperature", [](Request& r) { r.sampling.temperature = -1; });
  good_.thinking = ThinkingLimit{
      .open_tag = "<think>", .close_tag = "</think>", .words = {1}};
  EXPECT_FALSE(Check(good_));
  expect("thinking_budget", [](Request& r) { r.thinking->words.clear(); });
  expect("thinking_budget", [](Request& r) { r.thinking->close_tag = ""; });
  expect("thinking_budget holds id 100",
         [](Request& r) { r.thinking->words = {100}; });
}

TEST_F(AdmissionTest, ScratchIsWhatFreeBlocksDoNotHold) {
  Request request = MakeRequest(SomeIds(300, 1), 300);
  EXPECT_EQ(ScratchBytes(request, 4096, 0, 10), 30u);
  EXPECT_EQ(ScratchBytes(request, 4096, 2, 10), 10u);
  EXPECT_EQ(ScratchBytes(request, 512, 0, 10), 20u);
  EXPECT_EQ(ScratchBytes(request, 4096, 50, 10), 0u);
}

}  // namespace
}  // namespace holdfast::engine::testing
