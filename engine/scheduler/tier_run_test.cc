// Requests that resume from the tiers: the bits of a cold run, whatever fails.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/cache/state_image.h"
#include "engine/scheduler/session_spill.h"
#include "engine/testing/engine_variants.h"
#include "engine/testing/fake_tiers.h"
#include "engine/testing/test_engine.h"
#include "engine/testing/tier_node.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TierRunTest : public ::testing::TestWithParam<FakeModel::Kind> {
 protected:
  // An engine with an empty pool and tiers that hold what `from` stored.
  std::unique_ptr<TierNode> Make(int blocks = 24,
                                 const TierNode* from = nullptr,
                                 const char* costs = kCheapTiers) {
    return std::make_unique<TierNode>(
        std::make_unique<TestEngine>(model_, backend_, blocks, FakeTokenizer()),
        from, costs);
  }
  // One that stored the lines of `ids`.
  std::unique_ptr<TierNode> Stored(const Ids& ids, std::vector<int> lines) {
    auto node = Make();
    node->tiers->admit = std::move(lines);
    node->engine->Run(MakeRequest(ids));
    node->engine->state().tiering->leases.Collect({});
    node->engine->CheckPool();
    return node;
  }
  FakeModel model_{GetParam()};
  FakeBackend backend_;
  const int grid_ = static_cast<int>(model_.layout().grid_tokens);
};

TEST_P(TierRunTest, ALineComesBackAfterARestart) {
  const Ids ids = SomeIds(2 * grid_ + 300, 1);
  const auto old = Stored(ids, {grid_, 2 * grid_});
  ASSERT_EQ(old->tiers->entries.size(), 2u);
  const auto node = Make(24, old.get());
  // The same head, another message.
  Ids other = ids;
  other.back() = (other.back() + 1) % 250;
  const Answer answer = node->RunChecked(MakeRequest(other));
  const CacheReport& cache = answer.result.cache;
  EXPECT_EQ(cache.source, CacheSource::kDisk);
  EXPECT_EQ(cache.resumed_at, 2 * grid_);
  EXPECT_EQ(cache.restored, 2 * grid_);
  EXPECT_EQ(cache.computed, 300);
  EXPECT_EQ(cache.anchor, AnchorKind::kLine);
  EXPECT_EQ(cache.miss, MissReason::kNone);
  // From now on its rows are the pool's.
  const Answer again = node->RunChecked(MakeRequest(ids));
  EXPECT_EQ(again.result.cache.source, CacheSource::kResident);
  EXPECT_GE(again.result.cache.resumed_at, 2 * grid_);
}

TEST_P(TierRunTest, CostsGoToTheNextEngine) {
  const auto node = Make();
  node->Attach(MakeMeasuredCosts());
  node->tiers->remembered = {.prefill_tokens = 0, .read_bytes = {0, 0, 123}};
  node->engine->Run(MakeRequest(SomeIds(grid_, 90)));
  // The first lookup came before anything was measured.
  EXPECT_EQ(node->tiers->measured, PlannerRates());
  const TierCounters& counters = *node->engine->state().tiering->counters;
  EXPECT_EQ(counters.tiers[2].read_bytes_per_s, 123);
  node->engine->Run(MakeRequest(SomeIds(grid_, 91)));
  EXPECT_GT(node->tiers->measured.prefill_tokens, 0);
  EXPECT_EQ(node->tiers->measured.read_bytes[2], 123);
}

TEST_P(TierRunTest, APromptThatIsTheLineNeedsNoForward) {
  const Ids ids = SomeIds(grid_, 2);
  const auto old = Stored(ids, {grid_});
  const auto node = Make(24, old.get());
  const int forwards = model_.forwards();
  Request request = MakeRequest(ids, 1);
  const Answer answer = node->engine->Run(request);
  EXPECT_EQ(model_.forwards(), forwards);
  EXPECT_EQ(answer.result.cache.computed, 0);
  ExpectSame(answer, node->engine->Cold(request));
}

TEST_P(TierRunTest, OnlyRowsThatThePoolLacksAreRead) {
  const Ids ids = SomeIds(2 * grid_ + 10, 3);
  const auto old = Stored(ids, {2 * grid_});
  const auto node = Make(24, old.get());
  // Shares the first line and one block with it.
  Ids cut(ids.begin(), ids.begin() + grid_ + kBlockTokens);
  node->tiers->outcome = TierLookup::Outcome::kDetached;
  node->engine->Run(MakeRequest(cut));
  node->tiers->outcome = TierLookup::Outcome::kAnswered;
  const Answer answer = node->RunChecked(MakeRequest(ids));
  EXPECT_EQ(answer.result.cache.source, CacheSource::kDisk);
  EXPECT_EQ(answer.result.cache.resumed_at, 2 * grid_);
  EXPECT_EQ(answer.result.cache.restored, grid_ - kBlockTokens);
  EXPECT_THAT(
      CachedBySource(answer.result.cache),
      ElementsAre(std::pair(CacheSource::kDisk, grid_ - kBlockTokens),
                  std::pair(CacheSource::kResident, grid_ + kBlockTokens)));
}

TEST_P(TierRunTest, AFailedRestoreIsAMissWithItsReason) {
  const Ids ids = SomeIds(grid_ + 100, 4);
  const auto old = Stored(ids, {grid_});
  const struct {
    absl::Status status;
    MissReason miss;
  } cases[] = {{absl::DataLossError("x"), MissReason::kCorrupt},
               {absl::DeadlineExceededError("x"), MissReason::kDeadline},
               {absl::NotFoundError("x"), MissReason::kEvicted},
               {absl::UnavailableError("x"), MissReason::kCold}};
  for (const auto& c : cases) {
    const auto node = Make(24, old.get());
    node->tiers->restore_status = c.status;
    const Answer answer = node->RunChecked(MakeRequest(ids));
    EXPECT_EQ(answer.result.cache.source, CacheSource::kNone) << c.status;
    EXPECT_EQ(answer.result.cache.miss, c.miss) << c.status;
    EXPECT_EQ(answer.result.cache.computed, grid_ + 100);
  }
}

TEST_P(TierRunTest, TheNextCandidateServesWhenTheFirstIsBad) {
  const Ids ids = SomeIds(2 * grid_ + 10, 5);
  const auto old = Stored(ids, {grid_, 2 * grid_});
  const auto node = Make(24, old.get());
  node->tiers->restore_status = absl::NotFoundError("x");
  node->tiers->failures = 1;
  const Answer answer = node->RunChecked(MakeRequest(ids));
  EXPECT_EQ(answer.result.cache.resumed_at, grid_);
}

TEST_P(TierRunTest, WhyTheTiersDidNotServe) {
  const Ids ids = SomeIds(grid_ + 100, 6);
  const auto node = Make();
  node->tiers->minimum_tokens = 2 * grid_;
  EXPECT_EQ(node->RunChecked(MakeRequest(ids)).result.cache.miss,
            MissReason::kBelowMinimum);
  const auto late = Make();
  late->tiers->outcome = TierLookup::Outcome::kLate;
  EXPECT_EQ(late->RunChecked(MakeRequest(ids)).result.cache.miss,
            MissReason::kDeadline);
  const auto old = Stored(ids, {grid_});
  const auto slow = Make(24, old.get(), "prefill=1e9,store=1,disk=1,spill=1");
  EXPECT_EQ(slow->RunChecked(MakeRequest(ids)).result.cache.miss,
            MissReason::kTooCostly);
  EXPECT_EQ(slow->tiers->restores, 0);
}

TEST_P(TierRunTest, BypassAsksNobodyAndReadOnlyLeavesNothing) {
  const Ids ids = SomeIds(grid_ + 100, 7);
  const auto old = Stored(ids, {grid_});
  const auto node = Make(24, old.get());
  node->tiers->admit = {grid_};
  Request request = MakeRequest(ids);
  request.cache_mode = CacheMode::kBypass;
  node->engine->Run(request);
  EXPECT_EQ(node->tiers->lookups, 0);
  const std::string before = node->engine->Describe();
  request.cache_mode = CacheMode::kReadOnly;
  const Answer answer = node->engine->Run(request);
  EXPECT_EQ(answer.result.cache.source, CacheSource::kDisk);
  ExpectSame(answer, node->engine->Cold(request));
  EXPECT_EQ(node->engine->Describe(), before);
  EXPECT_EQ(node->tiers->entries.size(), 1u);
  EXPECT_TRUE(node->tiers->admitted_from.empty());
}

TEST_P(TierRunTest, LeasedBlocksAreNotReusedUntilTheyAreTakenBack) {
  const Ids ids = SomeIds(grid_ + 10, 8);
  auto node = Make(2 * grid_ / kBlockTokens + 2);
  node->tiers->admit = {grid_};
  node->tiers->hold = true;
  node->engine->resident().reset();
  RecordingSink sink;
  (void)node->engine->RunUnchecked(MakeRequest(ids), sink);
  ASSERT_EQ(node->tiers->held.size(), 1u);
  Leases& leases = node->engine->state().tiering->leases;
  EXPECT_EQ(leases.live(), 1);
  node->tiers->admit.clear();
  // Fits beside them: both stay.
  node->engine->resident().reset();
  (void)node->engine->RunUnchecked(MakeRequest(SomeIds(kBlockTokens, 9)), sink);
  EXPECT_EQ(leases.live(), 1);
  const auto job = node->tiers->held[0].first;
  EXPECT_EQ(node->leases[job.lease.slot], job.lease.generation);
  node->tiers->Write(job);
  // Needs every block: the lease ends first.
  (void)node->engine->RunUnchecked(MakeRequest(SomeIds(2 * grid_, 10)), sink);
  EXPECT_EQ(leases.live(), 0);
  EXPECT_EQ(leases.revoked(), 1u);
  EXPECT_EQ(node->leases[job.lease.slot], 0u);
  node->tiers->held[0].second(StoreOutcome::kRefused);
  leases.Collect({});
  node->engine->CheckPool();
  // What was read in time was right.
  const auto other = Make(24, node.get());
  EXPECT_EQ(other->RunChecked(MakeRequest(ids)).result.cache.source,
            CacheSource::kDisk);
}

TEST_P(TierRunTest, TheResidentIsSpilledAndComesBackAtItsEnd) {
  const Ids ids = SomeIds(grid_ + 77, 11);
  const auto old = Make();
  Request first = MakeRequest(ids, 5);
  const Answer turn = old->engine->Run(first);
  old->Spill();
  ASSERT_FALSE(old->tiers->entries.empty());
  old->engine->CheckPool();
  const auto node = Make(24, old.get());
  Ids next = ids;
  next.insert(next.end(), turn.ids.begin(), turn.ids.end());
  for (const std::int32_t id : SomeIds(300, 12)) next.push_back(id);
  const Answer answer = node->RunChecked(MakeRequest(next));
  EXPECT_EQ(answer.result.cache.source, CacheSource::kSpill);
  // The last token of an answer was never forwarded.
  EXPECT_EQ(answer.result.cache.resumed_at, grid_ + 77 + 4);
  EXPECT_EQ(answer.result.cache.anchor, AnchorKind::kEnd);
}

// The next user message parts in the turn, far below the newest anchors.
TEST_P(TierRunTest, TheTurnsAnchorIsStoredAndOutlivesTheSeat) {
  if (GetParam() != FakeModel::Kind::kRecurrent) {
    GTEST_SKIP() << "it has no anchors";
  }
  Request turn = MakeRequest(SomeIds(2 * grid_ + 300, 21), 5);
  turn.session_key = "a";
  turn.messages = {40, 700, 1200, 1500, 1800, 2100, 2200, 2300};
  turn.turn = 700;
  Request next = turn;
  next.prompt.resize(703);
  for (const std::int32_t id : SomeIds(2000, 22)) next.prompt.push_back(id);
  const auto old = Make(40);
  old->tiers->store_entry_bytes = std::uint64_t{1} << 40;
  old->engine->Run(turn);
  const auto stored = Make(40, old.get());
  const Answer from_store = stored->RunChecked(next);
  EXPECT_EQ(from_store.result.cache.source, CacheSource::kStore);
  EXPECT_EQ(from_store.result.cache.resumed_at, 700);
  EXPECT_EQ(from_store.result.cache.anchor, AnchorKind::kMessage);
  // Another one takes its seat.
  old->tiers->entries.clear();
  old->tiers->store_entry_bytes = 0;
  old->engine->Run(MakeRequest(SomeIds(2 * grid_, 23)));
  old->Spill();
  const auto spilled = Make(40, old.get());
  const Answer from_spill = spilled->RunChecked(next);
  EXPECT_EQ(from_spill.result.cache.source, CacheSource::kSpill);
  EXPECT_EQ(from_spill.result.cache.resumed_at, 700);
  const Answer parked = old->RunChecked(next);
  EXPECT_EQ(parked.result.cache.source, CacheSource::kParked);
  EXPECT_EQ(parked.result.cache.resumed_at, 700);
}

// It has the key of its conversation, and another session's title resumes in
// it.
TEST_P(TierRunTest, ATitleIsNotSpilledInItsConversationsPlace) {
  const auto node = Make(64);
  const auto of = [](const char* session, Ids prompt) {
    Request request = MakeRequest(std::move(prompt));
    request.session_key = session;
    return request;
  };
  const Ids instructions = SomeIds(500, 31);
  node->engine->Run(of("a", Joined(instructions, SomeIds(20, 32))));
  node->engine->Run(of("a", SomeIds(3 * grid_, 33)));
  node->engine->Run(of("b", SomeIds(3 * grid_, 34)));
  const Answer title =
      node->RunChecked(of("b", Joined(instructions, SomeIds(40, 35))));
  if (GetParam() == FakeModel::Kind::kAttentionOnly) {
    EXPECT_EQ(title.result.cache.source, CacheSource::kPinned);
  }
  node->Spill();
  std::vector<int> ends;
  for (const FakeTiers::Entry& entry : node->tiers->entries) {
    if (entry.kind != StoredState::kEnd) continue;
    EXPECT_EQ(entry.position, 3 * grid_ + 3) << entry.session_key;
    ends.push_back(entry.position);
  }
  EXPECT_EQ(ends.size(), 2u);
}

TEST_P(TierRunTest, APlannedStopWaitsForWhatIsBeingStored) {
  const auto node = Make();
  node->tiers->admit = {grid_};
  node->tiers->hold = true;
  RecordingSink sink;
  (void)node->engine->RunUnchecked(MakeRequest(SomeIds(grid_ + 10, 43)), sink);
  ASSERT_EQ(node->tiers->held.size(), 1u);
  node->tiers->hold = false;
  std::thread service([&] {
    for (auto& [job, done] : std::exchange(node->tiers->held, {})) {
      done(StoreOutcome::kStored);
    }
  });
  node->Spill();
  service.join();
  EXPECT_EQ(node->tiers->held_when_drained, 0u);
  EXPECT_FALSE(node->tiers->drained.empty());
}

TEST_P(TierRunTest, EachTurnAndOneLineGoToTheStateStore) {
  const auto old = Make();
  old->tiers->store_entry_bytes = std::uint64_t{1} << 40;
  old->tiers->store_line = grid_;
  const Ids ids = SomeIds(grid_ + 300, 15);
  const Answer turn = old->engine->Run(MakeRequest(ids, 5));
  ASSERT_EQ(old->tiers->entries.size(), 2u);
  EXPECT_EQ(old->tiers->entries[0].tier, Tier::kStore);
  EXPECT_EQ(old->tiers->entries[0].position, grid_);
  EXPECT_EQ(old->tiers->entries[1].position, grid_ + 304);
  const auto node = Make(24, old.get());
  Ids next = ids;
  next.insert(next.end(), turn.ids.begin(), turn.ids.end());
  for (const std::int32_t id : SomeIds(300, 16)) next.push_back(id);
  const Answer answer = node->RunChecked(MakeRequest(next));
  EXPECT_EQ(answer.result.cache.source, CacheSource::kStore);
  EXPECT_EQ(answer.result.cache.resumed_at, grid_ + 304);
  const auto other = Make(24, old.get());
  Ids edited = ids;
  edited.back() = (edited.back() + 1) % 250;
  const Answer head = other->RunChecked(MakeRequest(edited));
  EXPECT_EQ(head.result.cache.source, CacheSource::kStore);
  EXPECT_EQ(head.result.cache.resumed_at, grid_);
  // Too large for an entry.
  const auto small = Make();
  small->tiers->store_entry_bytes = 1;
  small->engine->Run(MakeRequest(ids));
  EXPECT_TRUE(small->tiers->entries.empty());
}

TEST_P(TierRunTest, HeadAndResumePositionGoToAdmission) {
  const auto node = Make();
  Request request = MakeRequest(SomeIds(grid_ + 10, 13));
  request.head = 700;
  node->engine->Run(request);
  EXPECT_THAT(node->tiers->admitted_from, ElementsAre(0));
  EXPECT_THAT(node->tiers->heads, ElementsAre(700));
  // No line is left, not even to start at: nothing is asked.
  node->engine->Run(request);
  EXPECT_THAT(node->tiers->admitted_from, ElementsAre(0));
}

TEST_P(TierRunTest, TheLineThatAPromptIsResumedAtMayBeStored) {
  const auto node = Make();
  const Ids ids = SomeIds(2 * grid_ + 10, 17);
  Request request = MakeRequest(ids);
  node->engine->Run(request);
  // Another prompt parts from it after the first line.
  Ids other(ids.begin(), ids.begin() + grid_);
  for (const std::int32_t id : SomeIds(grid_ + 20, 18)) other.push_back(id);
  node->tiers->admit = {grid_};
  const Answer answer = node->RunChecked(MakeRequest(other));
  EXPECT_EQ(answer.result.cache.resumed_at, grid_);
  EXPECT_EQ(answer.result.cache.anchor.has_value(),
            GetParam() != FakeModel::Kind::kAttentionOnly);
  if (!answer.result.cache.anchor) {
    // Behind rows alone lies the state of whoever had the buffer before.
    EXPECT_THAT(node->tiers->entries, IsEmpty());
    return;
  }
  EXPECT_THAT(node->tiers->admitted_from, ElementsAre(0, grid_));
  ASSERT_EQ(node->tiers->entries.size(), 1u);
  EXPECT_EQ(node->tiers->entries[0].position, grid_);
  node->engine->CheckPool();
  // What was stored is the state there.
  const auto fresh = Make(24, node.get());
  const Answer again = fresh->RunChecked(MakeRequest(other));
  EXPECT_EQ(again.result.cache.source, CacheSource::kDisk);
  EXPECT_EQ(again.result.cache.resumed_at, grid_);
}

TEST_P(TierRunTest, AClearedPoolHasNothing) {
  const auto node = Make();
  node->tiers->hold = true;
  node->tiers->admit = {grid_};
  const Ids ids = SomeIds(grid_ + 10, 14);
  RecordingSink sink;
  (void)node->engine->RunUnchecked(MakeRequest(ids), sink);
  EngineState& state = node->engine->state();
  EXPECT_EQ(state.tiering->leases.live(), 1);
  EXPECT_GT(state.Clear(), 0);
  EXPECT_EQ(state.pool.counts().free, state.pool.blocks());
  EXPECT_EQ(state.anchor_slots.live(), 0);
  EXPECT_FALSE(node->engine->resident().has_value());
  node->engine->CheckPool();
  node->tiers->admit.clear();
  EXPECT_EQ(node->RunChecked(MakeRequest(ids)).result.cache.source,
            CacheSource::kNone);
}

INSTANTIATE_TEST_SUITE_P(Models, TierRunTest, ModelKinds(), ModelKindName);

}  // namespace
}  // namespace holdfast::engine::testing
