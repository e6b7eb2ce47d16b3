#include "engine/scheduler/in_flight.h"

#include <memory>
#include <string>
#include <vector>

#include "engine/testing/engine_variants.h"
#include "engine/testing/loop_engine.h"
#include "gtest/gtest.h"

namespace holdfast::engine::testing {
namespace {

std::vector<KeyId> Keys(const Ids& ids) { return {ids.begin(), ids.end()}; }

TEST(WaitPositionTest, WhereTheyPart) {
  const GridRule any(kernels::Exactness::kRowInvariant, 1024);
  const GridRule grid(kernels::Exactness::kGrid, 1024);
  const auto owner = Keys(SomeIds(3000, 1));
  const auto other = Keys(Joined(SomeIds(2500, 1), SomeIds(700, 9)));
  EXPECT_EQ(WaitPosition(any, {owner, 100}, other, 0), 2500);
  EXPECT_EQ(WaitPosition(grid, {owner, 100}, other, 0), 2048);
  EXPECT_EQ(WaitPosition(any, {owner, 100}, owner, 0), 3000);
  EXPECT_EQ(WaitPosition(grid, {owner, 100}, owner, 0), 3000);
  // Nothing left to wait for.
  EXPECT_EQ(WaitPosition(any, {owner, 2500}, other, 0), 0);
  EXPECT_EQ(WaitPosition(grid, {owner, 2048}, other, 0), 0);
  // Less than a block, and a start ahead of the owner.
  EXPECT_EQ(WaitPosition(any, {owner, 2300}, other, 2300), 0);
  EXPECT_EQ(WaitPosition(any, {owner, 100}, other, 512), 0);
  EXPECT_EQ(WaitPosition(any, {owner, 100}, Keys(SomeIds(3000, 2)), 0), 0);
}

TEST(ChunkWatchTest, LateWithoutAChunkInTwiceItsTime) {
  holdfast::testing::FakeClock clock;
  ChunkWatch watch(1024, 100, clock.Now());
  clock.Advance(std::chrono::seconds(4));
  EXPECT_FALSE(watch.Late(900, 2, clock.Now()));
  EXPECT_FALSE(watch.Late(1100, 2, clock.Now()));  // a chunk was finished
  clock.Advance(std::chrono::seconds(4));
  EXPECT_FALSE(watch.Late(1200, 2, clock.Now()));
  clock.Advance(std::chrono::milliseconds(1));
  EXPECT_TRUE(watch.Late(1200, 2, clock.Now()));
}

class InFlightTest : public EngineVariantTest {
 protected:
  std::unique_ptr<LoopEngine> Make(int seats = 4) {
    return std::make_unique<LoopEngine>(
        model_, backend_,
        LoopEngine::Size{
            .blocks = 48, .seats = seats, .max_rows = grid() ? 1024 : 256});
  }
  static int Computed(const std::vector<Submitted>& all) {
    int computed = 0;
    for (const Submitted& one : all) {
      const CacheReport& cache = one.result().cache;
      EXPECT_EQ(cache.resumed_at + cache.computed, one.result().prompt_tokens);
      computed += cache.computed + one.result().recomputed;
    }
    return computed;
  }
  // Where a waiter of the same prompt goes on computes at most this: rows alone
  // give no first logits.
  static constexpr int kPastTheLastAnchor = 1;
};

TEST_P(InFlightTest, FourClientsSendOneNewPrompt) {
  const auto engine = Make();
  const Request request = MakeRequest(SomeIds(2000, 1), 6);
  std::vector<Submitted> all;
  for (int i = 0; i < 4; ++i) all.push_back(engine->Submit(request));
  engine->Round();
  EXPECT_EQ(engine->loop().counts().running, 1);  // waiters hold no seat
  EXPECT_EQ(engine->loop().counts().waiting, 3);
  // Nor the memory of a state.
  EXPECT_EQ(engine->state().section_buffers.in_use(),
            1 + engine->state().anchor_slots.live());
  engine->RunAll();
  EXPECT_LE(Computed(all), 2000 + 3 * kPastTheLastAnchor);
  const Answer alone = Make(1)->Run(request);
  for (const Submitted& one : all) ExpectSame(one.answer(), alone);
  EXPECT_EQ(engine->loop().counts().waits, 3u);
  engine->Check();
}

TEST_P(InFlightTest, TheOldestWaiterGoesOnWhenTheOwnerIsCancelled) {
  const auto engine = Make();
  const Request request = MakeRequest(SomeIds(3000, 1), 3);
  std::vector<Submitted> all;
  for (int i = 0; i < 4; ++i) all.push_back(engine->Submit(request));
  engine->RunUntil([&] {
    return !all[0].sink->progress.empty() && all[0].sink->progress.back() > 900;
  });
  const int done = all[0].sink->progress.back();
  ASSERT_LT(done, 3000);
  engine->Cancel(all[0]);
  engine->RunAll();
  EXPECT_EQ(all[0].result().reason, FinishReason::kCancelled);
  EXPECT_EQ(all[1].result().cache.resumed_at, done);
  EXPECT_EQ(all[1].result().cache.computed, 3000 - done);
  const Answer alone = Make(1)->Run(request);
  for (int i = 1; i < 4; ++i) {
    ExpectSame(all[i].answer(), alone);
    EXPECT_LE(all[i].result().cache.computed,
              i == 1 ? 3000 - done : kPastTheLastAnchor);
  }
  engine->Check();
}

TEST_P(InFlightTest, WaitersPartFromTheOwner) {
  const auto engine = Make();
  const Ids prompt = SomeIds(3000, 1);
  const Submitted owner = engine->Submit(MakeRequest(prompt, 3));
  engine->Round();
  std::vector<Submitted> waiters;
  std::vector<int> parts = {1300, 2100, 2700};
  for (int i = 0; i < 3; ++i) {
    Ids ids(prompt.begin(), prompt.begin() + parts[i]);
    waiters.push_back(
        engine->Submit(MakeRequest(Joined(ids, SomeIds(300, 50 + i)), 3)));
  }
  engine->RunAll();
  EXPECT_EQ(owner.result().cache.computed, 3000);
  for (int i = 0; i < 3; ++i) {
    const int from = grid() ? parts[i] / 1024 * 1024 : parts[i];
    EXPECT_EQ(waiters[i].result().cache.resumed_at, from);
    EXPECT_EQ(waiters[i].result().cache.source, CacheSource::kResident);
    ExpectSame(waiters[i].answer(), Make(1)->Run(waiters[i].job->request));
  }
  engine->Check();
}

TEST_P(InFlightTest, NobodyWaitsForAnotherSalt) {
  const auto engine = Make();
  Request request = MakeRequest(SomeIds(2000, 1), 3);
  const Submitted first = engine->Submit(request);
  request.salt = "other";
  const Submitted second = engine->Submit(request);
  engine->Round();
  EXPECT_EQ(engine->loop().counts().running, 2);
  engine->RunAll();
  EXPECT_EQ(second.result().cache.computed, 2000);
}

TEST_P(InFlightTest, BypassNeitherWaitsNorIsWaitedFor) {
  const auto engine = Make();
  Request request = MakeRequest(SomeIds(2000, 1), 3);
  request.cache_mode = CacheMode::kBypass;
  engine->Submit(request);
  engine->Submit(request);
  request.cache_mode = CacheMode::kDefault;
  engine->Submit(request);
  engine->Round();
  EXPECT_EQ(engine->loop().counts().waiting, 0);
  engine->RunAll();
}

TEST_P(InFlightTest, ALateOwnerIsNotWaitedForForEver) {
  const auto engine = Make();
  const Request request = MakeRequest(SomeIds(3900, 1), 3);
  const Submitted owner = engine->Submit(request);
  const Submitted waiter = engine->Submit(request);
  engine->Round();
  EXPECT_EQ(engine->loop().counts().waiting, 1);
  engine->clock.Advance(std::chrono::hours(1));
  engine->Round();
  if (!grid()) {  // a round finishes a chunk there
    EXPECT_EQ(engine->loop().counts().late_owners, 1u);
    EXPECT_EQ(engine->loop().counts().waiting, 0);
  }
  engine->RunAll();
  ExpectSame(waiter.answer(), owner.answer());
  engine->Check();
}

TEST_P(InFlightTest, NoLateOwnerIsWaitedForAgain) {
  if (grid()) return;  // a round finishes a chunk there
  const auto engine = Make();
  const Request request = MakeRequest(SomeIds(3900, 1), 3);
  std::vector<Submitted> all;
  for (int i = 0; i < 3; ++i) all.push_back(engine->Submit(request));
  engine->Round();
  engine->clock.Advance(std::chrono::hours(1));
  engine->Round();  // the second begins, the third waits for it
  EXPECT_EQ(engine->loop().counts().running, 2);
  engine->Round();  // the first is not behind the second
  engine->clock.Advance(std::chrono::hours(1));
  engine->Round();
  EXPECT_EQ(engine->loop().counts().running, 3);
  engine->RunAll();
  for (const Submitted& one : all) ExpectSame(one.answer(), all[0].answer());
  engine->Check();
}

// What goes on from its session's own rows has others than a cold run's, which
// serve nobody before they end.
TEST_P(InFlightTest, RowsOfASessionsOwnAreNotWaitedFor) {
  const auto engine = Make();
  Request first = MakeRequest(SomeIds(1100, 1), 4);
  first.session_key = "s";
  const Answer answer = engine->Run(first);
  Request next =
      MakeRequest(Joined(Joined(first.prompt, answer.ids), SomeIds(900, 2)), 3);
  next.session_key = "s";
  const Submitted one = engine->Submit(next);
  const Submitted two = engine->Submit(next);
  engine->Round();
  EXPECT_EQ(engine->loop().counts().running, grid() ? 2 : 1);
  engine->RunAll();
  EXPECT_EQ(one.result().cache.source, CacheSource::kEnd);
  ExpectSame(one.answer(), two.answer());
  engine->Check();
}

TEST_P(InFlightTest, AWaiterCanBeCancelled) {
  const auto engine = Make();
  const Request request = MakeRequest(SomeIds(2000, 1), 3);
  const Submitted owner = engine->Submit(request);
  const Submitted waiter = engine->Submit(request);
  engine->Round();
  engine->Cancel(waiter);
  engine->Round();
  EXPECT_TRUE(waiter.ended());
  EXPECT_FALSE(owner.ended());
  engine->RunAll();
  EXPECT_EQ(owner.result().cache.computed, 2000);
  engine->Check();
}

INSTANTIATE_TEST_SUITE_P(Engines, InFlightTest, EngineVariants(),
                         EngineVariantName);

}  // namespace
}  // namespace holdfast::engine::testing
