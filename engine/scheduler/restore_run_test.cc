// Rows that are read from a tier while other requests go on.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler/scheduler.h"
#include "engine/testing/engine_variants.h"
#include "engine/testing/tier_node.h"
#include "gtest/gtest.h"

namespace holdfast::engine::testing {
namespace {

constexpr int kGrid = 1024;

class RestoreRunTest : public EngineVariantTest {
 protected:
  RestoreRunTest() {
    // What the tiers have: two lines of a prompt.
    const auto first = Make();
    first->tiers->admit = {kGrid, 2 * kGrid};
    first->engine->Run(MakeRequest(prompt_));
    first->engine->Check();
    stored_ = first->tiers->entries;
    EXPECT_EQ(stored_.size(), 2u);
  }
  std::unique_ptr<LoopTierNode> Make(int blocks = 32, int seats = 3) {
    auto node = std::make_unique<LoopTierNode>(std::make_unique<LoopEngine>(
        model_, backend_,
        LoopEngine::Size{.blocks = blocks,
                         .seats = seats,
                         .max_rows = grid() ? kGrid : 512}));
    node->tiers->entries = stored_;
    node->tiers->hold_restores = true;
    return node;
  }
  // What the request gets from an engine of its own without tiers.
  Answer Alone(const Request& request) {
    return LoopEngine(
               model_, backend_,
               {.blocks = 32, .seats = 1, .max_rows = grid() ? kGrid : 512})
        .Run(request);
  }
  // Runs until its rows are being read.
  static Submitted SubmitAndRead(LoopTierNode& node, const Request& request) {
    const Submitted submitted = node.engine->Submit(request);
    node.engine->RunUntil([&] { return node.tiers->restoring() == 1; });
    return submitted;
  }

  const Ids prompt_ = SomeIds(2 * kGrid + 300, 1);
  std::vector<FakeTiers::Entry> stored_;
};

TEST_P(RestoreRunTest, OthersDecodeAndPrefillMeanwhile) {
  const auto node = Make();
  const Request talks = MakeRequest(SomeIds(100, 2), 300);
  const Submitted talking = node->engine->Submit(talks);
  node->engine->RunUntil([&] { return talking.sink->ids.size() == 3; });
  const Submitted reading = SubmitAndRead(*node, MakeRequest(prompt_));
  const Request reads = MakeRequest(SomeIds(1500, 3), 5);
  const Submitted computing = node->engine->Submit(reads);
  node->engine->RunUntil([&] { return computing.ended(); });
  EXPECT_EQ(node->tiers->restoring(), 1);
  EXPECT_GT(talking.sink->ids.size(), 5u);
  EXPECT_TRUE(reading.sink->progress.empty());
  node->tiers->EndRestore();
  node->engine->RunAll();
  EXPECT_EQ(reading.result().cache.source, CacheSource::kDisk);
  EXPECT_EQ(reading.result().cache.resumed_at, 2 * kGrid);
  EXPECT_EQ(reading.result().cache.restored, 2 * kGrid);
  ExpectSame(reading.answer(), Alone(MakeRequest(prompt_)));
  ExpectSame(talking.answer(), Alone(talks));
  ExpectSame(computing.answer(), Alone(reads));
  node->engine->Check();
}

TEST_P(RestoreRunTest, NothingElseToDoIsSaid) {
  const auto node = Make();
  const Submitted reading = SubmitAndRead(*node, MakeRequest(prompt_));
  node->engine->loop().Admit();
  EXPECT_FALSE(node->engine->loop().Step());
  const std::uint64_t rings = node->engine->state().bell->rings();
  node->tiers->EndRestore();
  EXPECT_GT(node->engine->state().bell->rings(), rings);
  EXPECT_TRUE(node->engine->loop().Step());
  node->engine->RunAll();
}

TEST_P(RestoreRunTest, TheNextPlanWhenReadingFails) {
  for (const int failures : {1, 2}) {
    SCOPED_TRACE(failures);
    const auto node = Make();
    const Submitted talking =
        node->engine->Submit(MakeRequest(SomeIds(100, 2), 300));
    const Submitted reading = SubmitAndRead(*node, MakeRequest(prompt_));
    for (int i = 0; i < failures; ++i) {
      ASSERT_EQ(node->tiers->restoring(), 1);
      // As when the cache service is killed.
      node->tiers->EndRestore(absl::UnavailableError("gone"));
      node->engine->Round();
    }
    if (node->tiers->restoring() > 0) node->tiers->EndRestore();
    node->engine->RunAll();
    EXPECT_EQ(reading.result().cache.resumed_at, failures == 1 ? kGrid : 0);
    ExpectSame(reading.answer(), Alone(MakeRequest(prompt_)));
    EXPECT_TRUE(talking.ended());
    node->engine->Check();
  }
}

TEST_P(RestoreRunTest, ADeadlineIsAMissAndNothingElseIsTried) {
  const auto node = Make();
  const Submitted reading = SubmitAndRead(*node, MakeRequest(prompt_));
  EXPECT_LE(node->tiers->deadlines.front(),
            std::chrono::seconds(2 * kGrid / 100 + 1));
  node->tiers->EndRestore(absl::DeadlineExceededError("late"));
  node->engine->RunAll();
  EXPECT_EQ(node->tiers->restores, 1);
  EXPECT_EQ(reading.result().cache.source, CacheSource::kNone);
  EXPECT_EQ(reading.result().cache.miss, MissReason::kDeadline);
  ExpectSame(reading.answer(), Alone(MakeRequest(prompt_)));
}

TEST_P(RestoreRunTest, ACancelledOneGivesItUp) {
  const auto node = Make();
  const Submitted reading = SubmitAndRead(*node, MakeRequest(prompt_));
  node->engine->Cancel(reading);
  node->engine->Round();
  EXPECT_EQ(node->tiers->restoring(), 0);
  ASSERT_TRUE(reading.ended());
  EXPECT_EQ(reading.result().reason, FinishReason::kCancelled);
  EXPECT_TRUE(node->engine->idle());
  node->engine->Check();
  EXPECT_EQ(node->engine->state().pool.counts().free, 32);
  const auto& disk = node->engine->state().tiering->counters->of(Tier::kDisk);
  EXPECT_EQ(
      disk.failed[static_cast<std::size_t>(RestoreFailure::kCancelled)].load(),
      1u);
}

// A waiting one costs no second read, whoever of the two goes away.
TEST_P(RestoreRunTest, WhatIsBeingReadIsReadOnce) {
  for (const bool first_goes : {false, true}) {
    SCOPED_TRACE(first_goes);
    const auto node = Make();
    const Submitted first = SubmitAndRead(*node, MakeRequest(prompt_));
    const Submitted second = node->engine->Submit(MakeRequest(prompt_));
    // Parts below what is read: it has its own place to start from.
    Ids parts(prompt_.begin(), prompt_.begin() + kGrid + 100);
    parts = Joined(parts, SomeIds(200, 5));
    node->engine->Round();
    EXPECT_EQ(node->engine->loop().counts().running, 1);
    EXPECT_EQ(node->engine->loop().counts().waiting, 1);
    const Submitted other = node->engine->Submit(MakeRequest(parts));
    node->engine->Round();
    EXPECT_EQ(node->tiers->restoring(), 2);
    if (first_goes) {
      node->engine->Cancel(first);
      node->engine->Round();
    }
    node->tiers->hold_restores = false;
    while (node->tiers->restoring() > 0) node->tiers->EndRestore();
    node->engine->RunAll();
    EXPECT_EQ(node->tiers->restores, first_goes ? 3 : 2);
    const CacheReport& cache = second.result().cache;
    EXPECT_EQ(cache.resumed_at + cache.computed, 2 * kGrid + 300);
    EXPECT_GE(cache.resumed_at, 2 * kGrid);
    ExpectSame(second.answer(), Alone(MakeRequest(prompt_)));
    ExpectSame(other.answer(), Alone(MakeRequest(parts)));
    node->engine->Check();
  }
}

// The oldest needs blocks: who reads is preempted like any other, and reads
// again.
TEST_P(RestoreRunTest, APreemptedOneReadsAgain) {
  const auto node = Make(/*blocks=*/13);
  const Request talks = MakeRequest(SomeIds(700, 2), 600);
  const Submitted talking = node->engine->Submit(talks);
  node->engine->RunUntil([&] { return talking.sink->ids.size() == 3; });
  const Submitted reading = SubmitAndRead(*node, MakeRequest(prompt_));
  node->engine->RunUntil(
      [&] { return node->engine->loop().counts().preemptions == 1; });
  EXPECT_EQ(node->tiers->restoring(), 0);
  node->engine->RunUntil([&] { return node->tiers->restoring() == 1; });
  EXPECT_TRUE(talking.ended());
  node->tiers->EndRestore();
  node->engine->RunAll();
  EXPECT_EQ(reading.result().preemptions, 1);
  EXPECT_EQ(reading.result().cache.source, CacheSource::kDisk);
  EXPECT_EQ(reading.result().cache.resumed_at, 2 * kGrid);
  ExpectSame(reading.answer(), Alone(MakeRequest(prompt_)));
  ExpectSame(talking.answer(), Alone(talks));
  node->engine->Check();
}

TEST_P(RestoreRunTest, TheEngineStopsWhileItReads) {
  const auto node = Make();
  SubmitAndRead(*node, MakeRequest(prompt_));
  // A loop that ends with requests gives the restore up.
  const auto tiers = std::move(node->tiers);
  node->engine.reset();
  EXPECT_EQ(tiers->restoring(), 0);
}

// The engine thread sleeps meanwhile, and wakes for what comes.
TEST_P(RestoreRunTest, AThreadWaitsForTheBell) {
  constexpr int kBlocks = 32;
  const AlignedBytes memory =
      AllocateAligned(kBlocks * model_.layout().BlockBytes());
  auto own_state = MakeState(model_, backend_, memory.get(), kBlocks,
                             FakeTokenizer(), grid() ? kGrid : 512, 32, {}, 2);
  EngineState& state = *own_state;
  FakeTiers tiers(state.pool);
  tiers.image_bytes = StateImageBytes(model_.layout());
  tiers.entries = stored_;
  const auto costs = *ParsePlannerCosts(kCheapTiers);
  std::vector<std::uint64_t> leases(kLeaseTableBytes / 8);
  state.tiering = std::make_unique<Tiering>(
      tiers, *costs, reinterpret_cast<std::byte*>(leases.data()), state.pool);
  tiers.hold_restores = true;
  Scheduler scheduler(std::move(own_state), {.debug = true});
  const auto submit = [&](Request request) {
    Submitted submitted;
    submitted.job = std::make_shared<Job>(std::move(request), submitted.sink);
    scheduler.Submit(submitted.job);
    return submitted;
  };
  const Submitted reading = submit(MakeRequest(prompt_));
  // Others run, and are not kept waiting by the one that reads.
  const Submitted other = submit(MakeRequest(SomeIds(300, 2), 20));
  ASSERT_TRUE(other.sink->WaitForEnd());
  EXPECT_EQ(other.result().reason, FinishReason::kLength);
  EXPECT_FALSE(reading.ended());
  scheduler.Cancel(reading.job);
  ASSERT_TRUE(reading.sink->WaitForEnd());
  EXPECT_EQ(reading.result().reason, FinishReason::kCancelled);
  // Ends with one under way.
  const Submitted last = submit(MakeRequest(prompt_));
}

INSTANTIATE_TEST_SUITE_P(Engines, RestoreRunTest, EngineVariants(),
                         EngineVariantName);

}  // namespace
}  // namespace holdfast::engine::testing
