// A long conversation that is stored before it loses rows, while other requests
// go on.
#include <chrono>
#include <memory>
#include <utility>

#include "engine/testing/engine_variants.h"
#include "engine/testing/tier_node.h"
#include "gtest/gtest.h"

namespace holdfast::engine::testing {
namespace {

class SpillRunTest : public EngineVariantTest {
 protected:
  // Nothing is parked: who takes a seat has the conversation that was there
  // spilled. The stores wait for the test.
  std::unique_ptr<LoopTierNode> Make(int blocks, int seats = 2) {
    LoopEngine::Size size{
        .blocks = blocks, .seats = seats, .max_rows = grid() ? 1024 : 512};
    size.kept.pin_bytes = 0;
    size.kept.park_bytes = 0;
    size.kept.spill_min_tokens = 1000;
    auto node = std::make_unique<LoopTierNode>(
        std::make_unique<LoopEngine>(model_, backend_, size));
    node->tiers->hold = true;
    return node;
  }
  static void EndStores(LoopTierNode& node) {
    for (auto& [job, done] : std::exchange(node.tiers->held, {})) {
      node.tiers->Write(job);
      done(StoreOutcome::kStored);
    }
  }
  Answer Alone(const Request& request) {
    return LoopEngine(
               model_, backend_,
               {.blocks = 32, .seats = 1, .max_rows = grid() ? 1024 : 512})
        .Run(request);
  }
  static Request Of(const char* session, Ids prompt, int max_tokens) {
    Request request = MakeRequest(std::move(prompt), max_tokens);
    request.session_key = session;
    return request;
  }
};

TEST_P(SpillRunTest, OthersDecodeWhileItIsStored) {
  const auto node = Make(/*blocks=*/20);
  LoopEngine& engine = *node->engine;
  const Request talks = Of("t", SomeIds(100, 1), 120);
  const Submitted talking = engine.Submit(talks);
  engine.RunUntil([&] { return talking.sink->ids.size() == 2; });
  const Request a = Of("a", SomeIds(2500, 2), 3);
  const Submitted first = engine.Submit(a);
  engine.RunUntil([&] { return first.ended(); });
  // Takes the seat, and more than the blocks that are left.
  const Request b = Of("b", SomeIds(2800, 3), 3);
  const Submitted second = engine.Submit(b);
  engine.RunUntil([&] { return !node->tiers->held.empty(); });
  const std::size_t tokens = talking.sink->ids.size();
  engine.RunUntil([&] { return talking.sink->ids.size() >= tokens + 20; });
  EXPECT_FALSE(second.ended());
  EXPECT_GT(engine.state().tiering->leases.awaited(), 0);
  EndStores(*node);
  engine.RunAll();
  EXPECT_EQ(engine.loop().counts().preemptions, 0u);
  ExpectSame(talking.answer(), Alone(talks));
  ExpectSame(second.answer(), Alone(b));
  EXPECT_EQ(engine.state().tiering->counters->lost_spills.load(), 0u);
  // It comes back as it was.
  node->tiers->hold = false;
  const Request next =
      Of("a", Joined(Joined(a.prompt, first.answer().ids), SomeIds(50, 4)), 3);
  const Submitted back = engine.Submit(next);
  engine.RunAll();
  EXPECT_EQ(back.result().cache.source, CacheSource::kSpill);
  EXPECT_EQ(back.result().cache.resumed_at, 2502);
  if (!grid()) ExpectSame(back.answer(), Alone(next));
  EndStores(*node);
  engine.Check();
}

TEST_P(SpillRunTest, AloneItIsSaidThatNothingCanBeDone) {
  const auto node = Make(/*blocks=*/14, /*seats=*/1);
  LoopEngine& engine = *node->engine;
  engine.Run(Of("a", SomeIds(2500, 2), 3));
  const Request b = Of("b", SomeIds(2800, 3), 3);
  const Submitted second = engine.Submit(b);
  engine.RunUntil([&] {
    engine.loop().Admit();
    return !engine.loop().Step() && !node->tiers->held.empty();
  });
  const std::uint64_t rings = engine.state().bell->rings();
  EndStores(*node);
  EXPECT_GT(engine.state().bell->rings(), rings);
  node->tiers->hold = false;
  engine.RunAll();
  ExpectSame(second.answer(), Alone(b));
  engine.Check();
}

TEST_P(SpillRunTest, AStoreThatNeverEndsIsWaitedForAsLongAsItsDeadline) {
  const auto node = Make(/*blocks=*/14, /*seats=*/1);
  LoopEngine& engine = *node->engine;
  engine.Run(Of("a", SomeIds(2500, 2), 3));
  const Request b = Of("b", SomeIds(2800, 3), 3);
  const Submitted second = engine.Submit(b);
  engine.RunUntil([&] { return !node->tiers->held.empty(); });
  // As when that has passed: the blocks are taken back.
  engine.state().tiering->leases.Collect(
      std::chrono::steady_clock::time_point::max());
  EXPECT_EQ(engine.state().tiering->leases.awaited(), 0);
  engine.RunUntil([&] { return second.ended(); });
  ExpectSame(second.answer(), Alone(b));
  EndStores(*node);
  engine.Check();
}

TEST_P(SpillRunTest, OfOneThatIsLateTheFirstHalfIsLeft) {
  if (!recurrent()) GTEST_SKIP() << "the index keeps its rows";
  const auto node = Make(/*blocks=*/24, /*seats=*/1);
  LoopEngine& engine = *node->engine;
  node->tiers->passes = 1;
  const Request a = Of("a", SomeIds(3000, 1), 3);
  const Answer first = engine.Run(a);
  const Submitted second = engine.Submit(Of("b", SomeIds(2000, 2), 3));
  engine.RunUntil([&] { return !node->tiers->held.empty(); });
  ASSERT_EQ(node->tiers->held.size(), 1u);
  const Tiering& tiering = *engine.state().tiering;
  EXPECT_EQ(tiering.counters->lost_spills.load(), 0u);
  engine.state().tiering->leases.Collect(
      std::chrono::steady_clock::time_point::max());
  EXPECT_EQ(engine.state().tiering->leases.live(), 0);
  // The cache service saw the lease end.
  std::exchange(node->tiers->held, {})[0].second(StoreOutcome::kDropped);
  EXPECT_EQ(tiering.counters->lost_spills.load(), 1u);
  node->tiers->hold = false;
  engine.RunAll();
  ASSERT_TRUE(second.ended());
  const Request next =
      Of("a", Joined(Joined(a.prompt, first.ids), SomeIds(300, 3)), 3);
  const Submitted back = engine.Submit(next);
  engine.RunAll();
  EXPECT_EQ(back.result().cache.source, CacheSource::kSpill);
  EXPECT_EQ(back.result().cache.resumed_at, 1024);
  ExpectSame(back.answer(), Alone(next));
  engine.Check();
}

// As when a second signal comes during a planned stop.
TEST_P(SpillRunTest, ADeadlineThatComesNearerHoldsForTheNextConversation) {
  const auto node = Make(/*blocks=*/20);
  LoopEngine& engine = *node->engine;
  node->tiers->hold = false;
  engine.Run(Of("a", SomeIds(300, 2), 3));
  engine.Run(Of("b", SomeIds(400, 3), 3));
  const auto& entries = node->tiers->entries;
  SpillConversations(engine.state(), [&entries] {
    using Time = std::chrono::steady_clock::time_point;
    return entries.empty() ? Time::max() : Time::min();
  });
  ASSERT_FALSE(entries.empty());
  for (const FakeTiers::Entry& entry : entries) {
    EXPECT_EQ(entry.session_key, entries[0].session_key);
  }
}

TEST_P(SpillRunTest, AndForTheOneThatIsBeingStored) {
  const auto node = Make(/*blocks=*/20);
  LoopEngine& engine = *node->engine;
  engine.Run(Of("a", SomeIds(300, 2), 3));
  const auto& held = node->tiers->held;
  SpillConversations(engine.state(), [&held] {
    using Time = std::chrono::steady_clock::time_point;
    return held.empty() ? Time::max() : Time::min();
  });
  EXPECT_EQ(held.size(), 1u);
  EndStores(*node);
}

// Where rows are copied to be lent there is room for one conversation, and two
// are to be spilled at once.
class CopiedSpillTest : public SpillRunTest {
 protected:
  // `a`, then `b`, then one that takes the seat for good.
  std::unique_ptr<LoopTierNode> MakeFull(int copies) {
    auto node = Make(/*blocks=*/40, /*seats=*/1);
    node->CopyToLend(backend_, copies);
    first_ = node->engine->Run(a_);
    second_ = node->engine->Run(b_);
    node->engine->Run(Of("c", SomeIds(1800, 4), 3));
    return node;
  }
  static std::uint64_t Lost(const LoopTierNode& node) {
    return node.engine->state().tiering->counters->lost_spills;
  }
  void ExpectComesBack(LoopTierNode& node, const Request& of,
                       const Answer& answer) {
    const Request next =
        Of(of.session_key.c_str(),
           Joined(Joined(of.prompt, answer.ids), SomeIds(50, 5)), 3);
    node.engine->state().pool.EvictAll();  // the index has rows of it
    const Answer back = node.engine->Run(next);
    EXPECT_EQ(back.result.cache.source, CacheSource::kSpill);
    EXPECT_EQ(back.result.cache.resumed_at,
              static_cast<int>(of.prompt.size()) + 2);
    if (!grid()) ExpectSame(back, Alone(next));
  }

  const Request a_ = Of("a", SomeIds(2500, 2), 3);
  const Request b_ = Of("b", SomeIds(2300, 3), 3);
  Answer first_;
  Answer second_;
};

TEST_P(CopiedSpillTest, TheNextWaitsForItsRoom) {
  const auto node = MakeFull(/*copies=*/15);
  EngineState& state = node->engine->state();
  EXPECT_FALSE(state.tiering->waiting.empty());
  while (SpillsUnderWay(state) || !node->tiers->held.empty()) {
    ASSERT_FALSE(node->tiers->held.empty());
    EndStores(*node);
  }
  EXPECT_TRUE(state.tiering->waiting.empty());
  EXPECT_EQ(Lost(*node), 0u);
  node->engine->Check();
  node->tiers->hold = false;
  ExpectComesBack(*node, a_, first_);
  ExpectComesBack(*node, b_, second_);
}

TEST_P(CopiedSpillTest, APlannedStopWaitsForThoseThatWait) {
  const auto node = MakeFull(/*copies=*/15);
  EXPECT_FALSE(node->engine->state().tiering->waiting.empty());
  node->tiers->hold = false;
  EndStores(*node);
  node->Spill();
  EXPECT_EQ(Lost(*node), 0u);
  EXPECT_TRUE(node->engine->state().tiering->waiting.empty());
  ExpectComesBack(*node, a_, first_);
  ExpectComesBack(*node, b_, second_);
}

TEST_P(CopiedSpillTest, OneThatIsLateIsLostAndGivesItsBlocksBack) {
  const auto node = MakeFull(/*copies=*/15);
  Tiering& tiering = *node->engine->state().tiering;
  tiering.waiting.Retry(tiering, std::chrono::steady_clock::time_point::max());
  EXPECT_TRUE(tiering.waiting.empty());
  EXPECT_GT(Lost(*node), 0u);
  EndStores(*node);
  node->engine->Check();
}

TEST_P(CopiedSpillTest, WhatIsClearedIsLost) {
  const auto node = MakeFull(/*copies=*/15);
  node->engine->state().Clear();
  EXPECT_TRUE(node->engine->state().tiering->waiting.empty());
  EXPECT_EQ(node->engine->state().pool.counts().free, 40);
  EndStores(*node);
}

TEST_P(CopiedSpillTest, WhatNeverFitsIsLostAtOnce) {
  const auto node = MakeFull(/*copies=*/9);
  EXPECT_TRUE(node->engine->state().tiering->waiting.empty());
  EXPECT_EQ(Lost(*node), 2u);
  EndStores(*node);
  node->engine->Check();
}

INSTANTIATE_TEST_SUITE_P(Engines, CopiedSpillTest, EngineVariants(),
                         EngineVariantName);
INSTANTIATE_TEST_SUITE_P(Engines, SpillRunTest, EngineVariants(),
                         EngineVariantName);

}  // namespace
}  // namespace holdfast::engine::testing
