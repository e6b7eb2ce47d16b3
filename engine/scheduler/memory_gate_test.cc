#include "engine/scheduler/memory_gate.h"

#include <memory>
#include <vector>

#include "engine/testing/loop_engine.h"
#include "engine/testing/tier_node.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MemoryGateTest : public ::testing::Test {
 protected:
  std::unique_ptr<LoopEngine> Make() {
    MemoryLimits limits{.keep_free_bytes = 1000,
                        .cache_budget_bytes = budget_,
                        .available = [this] { return available_; }};
    return std::make_unique<LoopEngine>(
        model_, backend_,
        LoopEngine::Size{.blocks = 16, .seats = 2, .memory = limits});
  }
  std::uint64_t BlockBytes() const { return model_.layout().BlockBytes(); }

  FakeModel model_{FakeModel::Kind::kRecurrent};
  FakeBackend backend_;
  std::uint64_t available_ = 1 << 30;
  std::uint64_t budget_ = 1 << 30;
};

TEST_F(MemoryGateTest, ShortMemoryTakesBlocksFromTheCachesFirst) {
  const auto engine = Make();
  engine->Run(MakeRequest(SomeIds(1500, 1), 4));
  engine->Run(MakeRequest(SomeIds(1500, 2), 4));
  EXPECT_EQ(engine->state().Residents().size(), 2u);
  const int untouched = engine->state().pool.counts().untouched;
  available_ = 1000 + BlockBytes();  // one block more than it must keep
  const Answer answer = engine->Run(MakeRequest(SomeIds(1200, 3), 4));
  EXPECT_EQ(answer.result.reason, FinishReason::kLength);
  // All but one come from what the caches had.
  EXPECT_GE(engine->state().pool.counts().untouched, untouched - 1);
  available_ = 1 << 30;
  ExpectSame(answer, Make()->Run(MakeRequest(SomeIds(1200, 3), 4)));
  engine->Check();
}

TEST_F(MemoryGateTest, WhatTheMemoryForbidsIsRefusedWithAReason) {
  const auto engine = Make();
  available_ = 1000 + 2 * BlockBytes();
  const Submitted small = engine->Submit(MakeRequest(SomeIds(300, 1), 4));
  engine->RunAll();
  EXPECT_EQ(small.result().reason, FinishReason::kLength);
  const Submitted large = engine->Submit(MakeRequest(SomeIds(3000, 2), 4));
  engine->RunAll();
  ASSERT_TRUE(large.sink->refusal());
  EXPECT_EQ(large.sink->refusal()->reason, Refusal::Reason::kOutOfBlocks);
  EXPECT_GT(large.sink->refusal()->retry_after_ms, 0);
  EXPECT_THAT(large.sink->refusal()->message, HasSubstr("memory"));
  engine->Check();
}

TEST_F(MemoryGateTest, WhileOthersRunItWaitsForThem) {
  const auto engine = Make();
  const Submitted first = engine->Submit(MakeRequest(SomeIds(1500, 1), 30));
  engine->Round();
  available_ = 1000;
  const Submitted second = engine->Submit(MakeRequest(SomeIds(1000, 2), 4));
  engine->Round();
  EXPECT_EQ(engine->loop().counts().waiting, 1);
  engine->RunAll();
  EXPECT_EQ(second.result().reason, FinishReason::kLength);
  EXPECT_EQ(first.result().reason, FinishReason::kLength);
  engine->Check();
}

TEST_F(MemoryGateTest, TheStateStoreIsGivenBackFirst) {
  const LoopTierNode node(Make());
  LoopEngine& engine = *node.engine;
  node.tiers->store_bytes = 5 * BlockBytes();
  node.tiers->on_freed = [this](std::uint64_t bytes) { available_ += bytes; };
  engine.Run(MakeRequest(SomeIds(1500, 1), 4));
  available_ = 1000 + BlockBytes();
  const Submitted second = engine.Submit(MakeRequest(SomeIds(1200, 2), 4));
  engine.RunAll();
  EXPECT_EQ(second.result().reason, FinishReason::kLength);
  // Nothing of the pool had to go.
  EXPECT_EQ(engine.state().Residents().size(), 2u);
  EXPECT_EQ(engine.state().Residents()[0]->rows(), 1503);
  EXPECT_EQ(node.tiers->store_bytes, BlockBytes());
  EXPECT_EQ(engine.state().tiering->counters->store_freed_bytes.load(),
            4 * BlockBytes());
  // It is empty then, and not asked again and again.
  available_ = 1000;
  const Submitted third = engine.Submit(MakeRequest(SomeIds(3800, 3), 4));
  engine.RunAll();
  EXPECT_TRUE(third.sink->refusal());
  EXPECT_EQ(node.tiers->store_bytes, 0u);
  EXPECT_LE(node.tiers->store_asked, 3);
}

TEST_F(MemoryGateTest, AnswersThatGrowTakeNoMemoryThatTheMachineMustKeep) {
  const auto engine = Make();
  const Request older = MakeRequest(SomeIds(500, 1), 280);
  const Request younger = MakeRequest(SomeIds(500, 2), 250);
  const Submitted first = engine->Submit(older);
  const Submitted second = engine->Submit(younger);
  engine->RunUntil([&] { return second.sink->ids.size() == 3; });
  // From now on blocks come from those alone that have memory.
  available_ = 1000;
  const int untouched = engine->state().pool.counts().untouched;
  engine->RunAll();
  EXPECT_EQ(engine->state().pool.counts().untouched, untouched);
  EXPECT_GT(engine->loop().counts().preemptions, 0u);
  EXPECT_EQ(first.result().preemptions, 0);
  EXPECT_EQ(first.result().reason, FinishReason::kLength);
  EXPECT_EQ(second.result().reason, FinishReason::kLength);
  available_ = 1 << 30;
  ExpectSame(first.answer(), Make()->Run(older));
  ExpectSame(second.answer(), Make()->Run(younger));
  engine->Check();
}

TEST_F(MemoryGateTest, AnAnswerThatNothingIsLeftForEndsWithAReason) {
  const auto engine = Make();
  const Submitted only = engine->Submit(MakeRequest(SomeIds(500, 1), 600));
  engine->RunUntil([&] { return only.sink->ids.size() == 3; });
  available_ = 1000;
  engine->RunAll();
  EXPECT_EQ(only.result().reason, FinishReason::kError);
  EXPECT_THAT(only.result().error, HasSubstr("memory"));
  EXPECT_EQ(only.sink->ids.size(), 13u);  // what two blocks hold
  engine->Check();
}

TEST_F(MemoryGateTest, AnchorsButTheNewestGoBeforeResidentRows) {
  const auto anchors = [](LoopEngine& engine) {
    std::vector<int> positions;
    for (const AnchorRef& anchor : engine.state().Residents()[0]->anchors) {
      positions.push_back(anchor->position);
    }
    return positions;
  };
  const Request large = MakeRequest(SomeIds(3200, 1), 4);
  const auto all = Make();
  all->Run(large);
  EXPECT_THAT(anchors(*all), ElementsAre(1024, 2048, 3072, 3200));
  const std::uint64_t one = all->state().section_buffers.section_bytes();
  budget_ = CacheBytes(all->state()) - 3 * one;
  const auto engine = Make();
  engine->Run(large);
  engine->Run(MakeRequest(SomeIds(100, 2), 4));  // on the other seat
  EXPECT_EQ(engine->state().Residents()[0]->rows(), 3203);
  EXPECT_THAT(anchors(*engine), ElementsAre(3200));
  engine->Check();
}

TEST_F(MemoryGateTest, CachesStayInTheirBudget) {
  budget_ = 4 * BlockBytes();
  const auto engine = Make();
  engine->Run(MakeRequest(SomeIds(2000, 1), 4));
  EXPECT_GT(CacheBytes(engine->state()), budget_);
  engine->Run(MakeRequest(SomeIds(100, 2), 4));
  EXPECT_LE(CacheBytes(engine->state()), budget_ + 2 * BlockBytes());
  engine->Check();
}

}  // namespace
}  // namespace holdfast::engine::testing
