// Conversations that take turns on a seat: what each finds when it comes back.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/engine_variants.h"
#include "engine/testing/test_engine.h"
#include "engine/testing/tier_node.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "shared/cache_layout.h"

namespace holdfast::engine::testing {
namespace {

using ::testing::ElementsAre;

Request Of(const char* session, Ids prompt, int max_tokens = 5) {
  Request request = MakeRequest(std::move(prompt), max_tokens);
  request.session_key = session;
  return request;
}

class RetentionRunTest : public EngineVariantTest {
 protected:
  std::unique_ptr<TestEngine> Make(int blocks = 64,
                                   const RetentionBudgets& kept = {}) {
    return std::make_unique<TestEngine>(model_, backend_, blocks,
                                        FakeTokenizer(), 1024, 32, kept);
  }
  std::uint64_t block_bytes() const { return model_.layout().BlockBytes(); }
  // The next turn: what was answered, and more.
  static Ids Next(const Request& turn, const Answer& answer, int more,
                  int seed) {
    return Joined(Joined(turn.prompt, answer.ids), SomeIds(more, seed));
  }
  // Rows that a turn leaves: the last token of an answer is never forwarded.
  static int Rows(const Request& turn) {
    return static_cast<int>(turn.prompt.size()) + turn.max_tokens - 1;
  }
  Answer RunChecked(TestEngine& engine, const Request& request) {
    const Answer warm = engine.Run(request);
    const auto& taint = warm.result.digests->taint;
    if (!taint || *taint >= warm.result.prompt_tokens) {
      ExpectSame(warm, engine.Cold(request));
    }
    return warm;
  }
  void ExpectAt(const Answer& answer, CacheSource source, int position) {
    EXPECT_EQ(answer.result.cache.source, source);
    EXPECT_EQ(answer.result.cache.resumed_at, position);
    int rows = 0;
    for (const auto& [from, count] : CachedBySource(answer.result.cache)) {
      rows += count;
    }
    EXPECT_EQ(rows, position);
  }
};

TEST_P(RetentionRunTest, ATitleRequestCostsTheConversationNothing) {
  const auto engine = Make();
  const Request first = Of("a", SomeIds(3000, 1));
  const Answer answer = engine->Run(first);
  const int anchors = static_cast<int>(engine->resident()->anchors.size());
  const Request title = Of("a", SomeIds(300, 2));
  RunChecked(*engine, title);
  EXPECT_EQ(engine->state().retained.counters().guests, 1u);
  EXPECT_EQ(engine->state().retained.counters().displaced, 0u);
  EXPECT_EQ(engine->resident()->rows(), Rows(first));
  EXPECT_EQ(static_cast<int>(engine->resident()->anchors.size()), anchors);
  const Answer next = RunChecked(*engine, Of("a", Next(first, answer, 50, 3)));
  ExpectAt(next, CacheSource::kEnd, Rows(first));
  // The same title again; a guest's rows are of no seat.
  const Answer again = RunChecked(*engine, title);
  if (!grid() || recurrent()) {
    EXPECT_GE(again.result.cache.resumed_at, grid() ? 0 : 256);
  }
  EXPECT_EQ(engine->state().guest_overflows, 0u);
}

// Title requests of two sessions have their instructions in common.
TEST_P(RetentionRunTest, TheNextGuestOfItsKindResumesBehindTheInstructions) {
  const auto engine = Make();
  engine->Run(Of("a", SomeIds(5000, 1)));
  const Ids instructions = SomeIds(700, 2);
  Request title = Of("a", Joined(instructions, SomeIds(60, 3)));
  title.messages = {0, 690, 700, 755};
  title.turn = 755;
  RunChecked(*engine, title);
  title.prompt = Joined(instructions, SomeIds(80, 4));
  title.messages.back() = title.turn = 775;
  const Answer next = RunChecked(*engine, title);
  const int there = grid() ? 0 : recurrent() ? 690 : 700;
  ExpectAt(next, there > 0 ? CacheSource::kResident : CacheSource::kNone,
           there);
}

TEST_P(RetentionRunTest, AGuestKeepsNoEnd) {
  const auto engine = Make();
  engine->Run(Of("a", SomeIds(4000, 1)));
  const Request guest = Of("b", SomeIds(500, 2), 100);
  const Answer answer = engine->Run(guest);
  const Answer next = RunChecked(*engine, Of("b", Next(guest, answer, 50, 3)));
  EXPECT_NE(next.result.cache.source, CacheSource::kEnd);
  if (recurrent()) {
    // At its prompt's end, where a longer prompt may start on no grid.
    ExpectAt(next, grid() ? CacheSource::kNone : CacheSource::kResident,
             grid() ? 0 : 500);
  }
}

TEST_P(RetentionRunTest, ADisplacedSessionComesBackAtItsEnd) {
  const auto engine = Make();
  const Ids head = SomeIds(1100, 1);
  const Request a = Of("a", Joined(head, SomeIds(900, 2)));
  const Request b = Of("b", Joined(head, SomeIds(1200, 3)));
  const Answer first = engine->Run(a);
  const Answer other = RunChecked(*engine, b);
  EXPECT_EQ(other.result.cache.source, other.result.cache.resumed_at > 0
                                           ? CacheSource::kResident
                                           : CacheSource::kNone);
  const Request a2 = Of("a", Next(a, first, 80, 4));
  const Answer back = RunChecked(*engine, a2);
  ExpectAt(back, CacheSource::kParked, Rows(a));
  // The head is the other one's, too, up to the block in which they part.
  SourceRows rows = {{CacheSource::kResident, 1024}};
  if (!grid()) rows.emplace_back(CacheSource::kPinned, 256);
  rows.emplace_back(CacheSource::kParked, Rows(a) - (grid() ? 1024 : 1280));
  EXPECT_EQ(CachedBySource(back.result.cache), rows);
  const Answer and_back = RunChecked(*engine, Of("b", Next(b, other, 80, 5)));
  ExpectAt(and_back, CacheSource::kParked, Rows(b));
  const Answer once_more = RunChecked(*engine, Of("a", Next(a2, back, 80, 6)));
  ExpectAt(once_more, CacheSource::kParked, Rows(a2));
}

TEST_P(RetentionRunTest, ALongUnrelatedRequestThenBack) {
  const auto engine = Make();
  const Request a = Of("a", SomeIds(3000, 1));
  const Answer first = engine->Run(a);
  RunChecked(*engine, Of("b", SomeIds(2900, 2)));
  EXPECT_EQ(engine->state().retained.counters().displaced, 1u);
  // Without its answer's last token: the whole of it was never forwarded.
  const Answer back = RunChecked(*engine, Of("a", Next(a, first, 1, 3)));
  ExpectAt(back, CacheSource::kParked, Rows(a));
}

// Whose rows were computed by decode: nobody else's.
TEST_P(RetentionRunTest, AParkedEndOnAGridServesItsOwnSessionAlone) {
  const auto engine = Make();
  const Request a = Of("a", SomeIds(2100, 1), 20);
  const Answer first = engine->Run(a);
  engine->Run(Of("b", SomeIds(2000, 2)));
  const Answer other = RunChecked(*engine, Of("c", Next(a, first, 50, 3)));
  ExpectAt(other, CacheSource::kParked, grid() ? 2048 : Rows(a));
}

TEST_P(RetentionRunTest, ACompactionPinsTheHead) {
  const auto engine = Make();
  const Ids head = SomeIds(2100, 1);
  Request a = Of("a", Joined(head, SomeIds(1500, 2)));
  a.messages = {2100};
  a.head = 2100;
  engine->Run(a);
  RunChecked(*engine, Of("a", SomeIds(3000, 3)));
  EXPECT_EQ(engine->state().retained.all().back().pinned_blocks,
            grid() ? 3072 / kBlockTokens : Rows(a) / kBlockTokens);
  Request next = Of("a", Joined(head, SomeIds(700, 4)));
  next.messages = {2100};
  const Answer answer = RunChecked(*engine, next);
  ExpectAt(answer, CacheSource::kPinned, grid() ? 2048 : 2100);
}

TEST_P(RetentionRunTest, AKnownHeadIsPinnedForTheNextSession) {
  const auto engine = Make();
  const Ids head = SomeIds(2100, 1);
  Request a = Of("a", Joined(head, SomeIds(900, 2)));
  a.messages = {2100};
  a.head = 2100;
  engine->Run(a);
  engine->Run(Of("b", SomeIds(2000, 3)));
  Request c = Of("c", Joined(head, SomeIds(800, 4)));
  c.messages = {2100};
  const Answer answer = RunChecked(*engine, c);
  ExpectAt(answer, CacheSource::kPinned, grid() ? 2048 : 2100);
}

TEST_P(RetentionRunTest, WithoutBudgetsOnlyTheResidentStays) {
  RetentionBudgets none;
  none.pin_bytes = none.park_bytes = none.stash_bytes = 0;
  const auto engine = Make(64, none);
  const Request a = Of("a", SomeIds(3000, 1));
  const Answer first = engine->Run(a);
  engine->Run(Of("b", SomeIds(2900, 2)));
  EXPECT_TRUE(engine->state().retained.all().empty());
  const Answer back = RunChecked(*engine, Of("a", Next(a, first, 40, 3)));
  if (recurrent()) {
    ExpectAt(back, CacheSource::kNone, 0);
  } else {  // rows of no class are in the index still
    ExpectAt(back, CacheSource::kResident, grid() ? 2048 : 2816);
  }
}

TEST_P(RetentionRunTest, TheParkBudgetCutsFromTheTop) {
  RetentionBudgets budgets;
  budgets.park_bytes = 9 * block_bytes();
  const auto engine = Make(64, budgets);
  const Request a = Of("a", SomeIds(3000, 1));
  const Answer first = engine->Run(a);
  engine->Run(Of("b", SomeIds(2900, 2)));
  ASSERT_EQ(engine->state().retained.all().size(), 1u);
  EXPECT_LE(engine->state().retained.all().back().sequence.rows(), 2304);
  const Answer back = RunChecked(*engine, Of("a", Next(a, first, 40, 3)));
  EXPECT_GE(back.result.cache.resumed_at, 2048);
  EXPECT_LT(back.result.cache.resumed_at, Rows(a));
}

// Parked rows go first, then pinned ones, and only then the conversation that
// the guest runs beside.
TEST_P(RetentionRunTest, AGuestWithoutRoomTakesParkThenPinThenTheTail) {
  const auto engine = Make(/*blocks=*/23);
  Request a = Of("a", SomeIds(1500, 1));
  a.head = 512;
  engine->Run(a);
  const Request b = Of("b", SomeIds(4000, 2));
  engine->Run(b);
  const Retained& retained = engine->state().retained;
  EXPECT_EQ(engine->state().pool.held(RetentionClass::kResident), 16);
  EXPECT_EQ(engine->state().guest_overflows, 0u);
  RunChecked(*engine, Of("c", SomeIds(990, 3), 200));
  EXPECT_EQ(engine->state().guest_overflows, 0u);
  EXPECT_EQ(engine->resident()->rows(), Rows(b));
  EXPECT_GT(retained.counters().blocks_cut[IndexOf(RetentionClass::kParked)],
            0u);
  RunChecked(*engine, Of("c", SomeIds(990, 4), 2000));
  EXPECT_EQ(engine->state().guest_overflows, 1u);
  EXPECT_LT(engine->resident()->rows(), Rows(b));
  for (const KeptConversation& kept : retained.all()) {
    EXPECT_EQ(kept.rest, RetentionClass::kGuest);
  }
}

TEST_P(RetentionRunTest, GuestsAreNeitherStoredNorCounted) {
  const TierNode node(Make());
  TestEngine* const engine = node.engine.get();
  FakeTiers& tiers = *node.tiers;
  tiers.store_entry_bytes = std::uint64_t{1} << 40;
  tiers.admit = {1024};
  engine->Run(Of("a", SomeIds(6000, 1)));
  const std::size_t admitted = tiers.admitted_from.size();
  const std::size_t stored = tiers.entries.size();
  EXPECT_EQ(admitted, 1u);
  engine->Run(Of("b", SomeIds(1400, 2)));
  EXPECT_EQ(tiers.admitted_from.size(), admitted);
  EXPECT_EQ(tiers.entries.size(), stored);
}

TEST_P(RetentionRunTest, ALongConversationIsSpilledBeforeItLosesRows) {
  RetentionBudgets budgets;
  budgets.park_bytes = 0;
  budgets.spill_min_tokens = 2500;
  const TierNode node(Make(64, budgets));
  TestEngine* const engine = node.engine.get();
  FakeTiers& tiers = *node.tiers;
  const Request a = Of("a", SomeIds(3000, 1));
  const Answer first = engine->Run(a);
  const Request b = Of("b", SomeIds(2000, 2));
  engine->Run(b);  // no guest
  const Answer back = RunChecked(*engine, Of("a", Next(a, first, 300, 3)));
  const auto spilled = [&tiers] {
    return std::ranges::count(tiers.entries, Tier::kSpill,
                              &FakeTiers::Entry::tier);
  };
  ExpectAt(back, CacheSource::kSpill, Rows(a));
  EXPECT_GT(back.result.cache.restored, 0);
  // The other one was too short for it.
  for (const FakeTiers::Entry& entry : tiers.entries) {
    EXPECT_EQ(entry.ids[0], static_cast<KeyId>(a.prompt[0]));
  }
  const auto entries = spilled();
  engine->Run(Of("c", SomeIds(2900, 4)));
  EXPECT_GT(spilled(), entries);  // a again, which has grown
  EXPECT_EQ(engine->state().tiering->counters->lost_spills.load(), 0u);
}

TEST_P(RetentionRunTest, ClearForgetsEveryClass) {
  const auto engine = Make();
  engine->Run(Of("a", SomeIds(3000, 1)));
  engine->Run(Of("b", SomeIds(2900, 2)));
  engine->Run(Of("c", SomeIds(300, 3)));
  // On a grid nobody could begin in the guest's part of a chunk.
  EXPECT_EQ(engine->state().retained.all().size(), grid() ? 1u : 2u);
  engine->state().Clear();
  EXPECT_EQ(engine->state().pool.counts().free, 64);
  EXPECT_EQ(engine->state().anchor_slots.live(), 0);
}

// Any order of requests of several sessions: exact, budgets kept (checked after
// each by TestEngine), and guests shrink no resident but when that is counted.
TEST_P(RetentionRunTest, AnyOrderIsExactAndKeepsTheBudgets) {
  int parked = 0, pinned = 0, guests = 0, ends = 0;
  for (unsigned seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    const auto upto = [&random](int n) {
      return static_cast<int>(random() % static_cast<unsigned>(n));
    };
    RetentionBudgets budgets;
    budgets.stash_bytes = upto(8) * block_bytes();
    budgets.pin_bytes = upto(16) * block_bytes();
    budgets.park_bytes = upto(24) * block_bytes();
    budgets.guest_max_tokens = 700;
    const auto engine = Make(22 + upto(30), budgets);
    const char* names[] = {"a", "b", "c"};
    Ids heads[3], conversations[3];
    for (int i = 0; i < 3; ++i) {
      heads[i] = SomeIds(200 + upto(1200), 1);  // all begin alike
      conversations[i] = heads[i];
    }
    for (int turn = 0; turn < 40; ++turn) {
      const int who = upto(3);
      const int kind = upto(8);
      Ids prompt;
      if (kind == 0) {
        prompt = SomeIds(20 + upto(500), 100 + turn);  // a title
      } else if (kind == 1) {
        prompt = SomeIds(1500 + upto(1500), 200 + turn);  // a compaction
        conversations[who] = heads[who];
      } else {
        if (kind == 2) {  // an edit
          conversations[who].resize(
              1 + upto(static_cast<int>(conversations[who].size())));
        }
        conversations[who] =
            Joined(conversations[who], SomeIds(1 + upto(500), upto(4)));
        if (conversations[who].size() > 3600) conversations[who] = heads[who];
        prompt = conversations[who];
      }
      Request request = Of(names[who], prompt, 1 + upto(40));
      if (random() % 2 == 0)
        request.head = std::min<int>(static_cast<int>(heads[who].size()),
                                     static_cast<int>(prompt.size()));
      if (random() % 3 == 0)
        request.messages = {static_cast<int>(prompt.size()) / 2};
      const int before = engine->resident() ? engine->resident()->rows() : 0;
      const std::uint64_t overflows = engine->state().guest_overflows;
      const std::uint64_t guests_before =
          engine->state().retained.counters().guests;
      const Answer warm = RunChecked(*engine, request);
      const CacheReport& cache = warm.result.cache;
      if (engine->state().retained.counters().guests > guests_before) {
        ++guests;
        const int rows = engine->resident() ? engine->resident()->rows() : 0;
        if (engine->state().guest_overflows == overflows) {
          EXPECT_EQ(rows, before);
        } else {
          EXPECT_LT(rows, before);
        }
      }
      parked += cache.source == CacheSource::kParked;
      pinned += cache.source == CacheSource::kPinned;
      ends += cache.source == CacheSource::kEnd;
      if (kind > 1 && random() % 3 != 0) {
        conversations[who] = Joined(conversations[who], warm.ids);
      }
      if (::testing::Test::HasFailure()) {
        FAIL() << "seed " << seed << " turn " << turn;
      }
    }
    engine->state().Clear();
    EXPECT_EQ(engine->state().pool.counts().free,
              engine->state().pool.blocks());
  }
  EXPECT_GT(parked, 10);
  EXPECT_GT(pinned, 0);
  EXPECT_GT(guests, 10);
  EXPECT_GT(ends, 10);
}

INSTANTIATE_TEST_SUITE_P(Kinds, RetentionRunTest, EngineVariants(),
                         EngineVariantName);

}  // namespace
}  // namespace holdfast::engine::testing
