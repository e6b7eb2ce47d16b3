// What is kept of conversations that left their seats, without an engine.
#include "engine/retention/retained.h"

#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/testing/fake_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kBytes = kBlockAlignment;
constexpr std::size_t kSection = 512;
constexpr int kGrid = 1024;

struct Shape {
  int blocks = 64;
  bool recurrent = true;
  kernels::Exactness exactness = kernels::Exactness::kRowInvariant;
  RetentionBudgets budgets = {};
};

class Kept {
 public:
  explicit Kept(const Shape& shape = {})
      : memory_(AllocateAligned(shape.blocks * kBytes)),
        pool(memory_.get(), kBytes, shape.blocks),
        retained(pool, slots,
                 {.grid = GridRule(shape.exactness, kGrid),
                  .recurrent = shape.recurrent},
                 shape.budgets) {}

  // Rows of ids `first`, first + 1, ... with anchors at the positions.
  Sequence Make(int rows, int first, const std::vector<int>& anchors,
                RetentionClass c = RetentionClass::kResident) {
    Sequence sequence(&pool, BlockTable::Kind::kPooled, RootPrefixKey({}, ""),
                      buffers.Take());
    sequence.table.set_retention(c);
    while (sequence.table.size() * kBlockTokens < rows) {
      EXPECT_TRUE(sequence.table.Append());
    }
    sequence.ids.resize(rows);
    std::iota(sequence.ids.begin(), sequence.ids.end(), first);
    sequence.prompt_tokens = rows;
    for (const int position : anchors) {
      sequence.anchors.push_back(slots.Take(position, AnchorKind::kLine,
                                            Provenance::kGrid,
                                            sequence.sections.get(), c));
    }
    return sequence;
  }
  // A sequence that begins with `rows` rows of the other's blocks.
  Sequence Fork(const Sequence& from, int rows) {
    Sequence sequence(&pool, BlockTable::Kind::kPooled, from.root,
                      buffers.Take());
    for (int i = 0; i < rows / kBlockTokens; ++i) {
      sequence.table.Adopt(from.table.block(i));
    }
    sequence.ids.assign(from.ids.begin(), from.ids.begin() + rows);
    return sequence;
  }
  void Displace(Sequence sequence, const Displacement& by = {}) {
    retained.Displace(std::move(sequence), by, {});
    Check();
  }
  void Check(const std::vector<const Sequence*>& others = {}) {
    std::vector<BlockId> held;
    std::vector<const Sequence*> all = retained.Sequences();
    all.insert(all.end(), others.begin(), others.end());
    for (const Sequence* sequence : all) {
      for (int i = 0; i < sequence->table.size(); ++i) {
        held.push_back(sequence->table.block(i));
      }
    }
    const absl::Status of_pool = pool.CheckInvariants(held);
    EXPECT_TRUE(of_pool.ok()) << of_pool.message();
    const absl::Status of_kept = retained.CheckInvariants();
    EXPECT_TRUE(of_kept.ok()) << of_kept.message();
  }
  const KeptConversation& newest() const { return retained.all().back(); }
  const KeptConversation& oldest() const { return retained.all().front(); }
  static std::vector<int> Anchors(const KeptConversation& kept) {
    std::vector<int> positions;
    for (const AnchorRef& anchor : kept.sequence.anchors) {
      positions.push_back(anchor->position);
    }
    return positions;
  }

 private:
  AlignedBytes memory_;

 public:
  testing::FakeBackend backend;
  SectionBuffers buffers{backend, kSection};
  AnchorSlots slots{&buffers, 100};
  BlockPool pool;
  Retained retained;
};

TEST(RetainedTest, ADisplacedConversationKeepsItsLastPartialBlockAndItsEnd) {
  Kept kept;
  kept.Displace(kept.Make(3000, 1, {1024, 2048}), {.shared_rows = 1100});
  EXPECT_EQ(kept.newest().sequence.rows(), 3000);
  EXPECT_NE(kept.newest().sequence.sections, nullptr);
  EXPECT_EQ(kept.newest().pinned_blocks, 5);
  EXPECT_EQ(kept.pool.held(RetentionClass::kPinned), 5);
  EXPECT_EQ(kept.pool.held(RetentionClass::kParked), 7);
  EXPECT_EQ(kept.slots.live(RetentionClass::kPinned), 1);
  EXPECT_EQ(kept.slots.live(RetentionClass::kParked), 1);
  EXPECT_EQ(kept.slots.live(RetentionClass::kResident), 0);
  EXPECT_EQ(kept.retained.bytes(RetentionClass::kParked),
            7 * kBytes + 2 * kSection);
}

TEST(RetainedTest, ItsHeadHasEightSpreadAnchorsAndTheRestTheNewestFour) {
  Kept kept({.blocks = 128});
  std::vector<int> anchors;
  for (int i = 1; i <= 24; ++i) anchors.push_back(1024 * i);
  kept.Displace(kept.Make(24 * 1024, 1, anchors), {.shared_rows = 16 * 1024});
  EXPECT_EQ(kept.slots.live(RetentionClass::kPinned), 8);
  EXPECT_THAT(Kept::Anchors(kept.newest()),
              ElementsAre(2048, 4096, 6144, 8192, 10240, 12288, 14336, 16384,
                          21504, 22528, 23552, 24576));
  EXPECT_EQ(kept.retained.counters().anchors_thinned, 12u);
}

TEST(RetainedTest, AnchorsOfTheHeirStayItsOwn) {
  Kept kept;
  Sequence a = kept.Make(2000, 1, {512, 1024});
  const AnchorList heir = {a.anchors[0]};
  kept.retained.Displace(std::move(a), {}, heir);
  EXPECT_THAT(Kept::Anchors(kept.newest()), ElementsAre(1024));
  EXPECT_EQ(kept.slots.live(RetentionClass::kResident), 1);
}

// Rows go from the top, and the anchors that stay are the newest below the cut.
TEST(RetainedTest, TheParkBudgetCutsFromTheTop) {
  RetentionBudgets budgets;
  budgets.park_bytes = 20 * kBytes + 5 * kSection;
  Kept kept({.budgets = budgets});
  std::vector<int> anchors;
  for (int i = 1; i <= 8; ++i) anchors.push_back(1024 * i);
  kept.Displace(kept.Make(8192 + 100, 1, anchors));
  EXPECT_EQ(kept.newest().sequence.sections, nullptr);
  EXPECT_EQ(kept.newest().sequence.rows(), 5120);
  EXPECT_THAT(Kept::Anchors(kept.newest()),
              ElementsAre(2048, 3072, 4096, 5120));
  EXPECT_EQ(
      kept.retained.counters().blocks_cut[IndexOf(RetentionClass::kParked)],
      13u);
}

TEST(RetainedTest, OlderSessionsMakeRoomForNewerOnes) {
  RetentionBudgets budgets;
  budgets.park_bytes = 10 * kBytes;
  Kept kept({.budgets = budgets});
  kept.Displace(kept.Make(1024, 1, {512}));
  kept.Displace(kept.Make(1024, 5000, {512}));
  kept.Displace(kept.Make(600, 9000, {}));
  ASSERT_EQ(kept.retained.all().size(), 3u);
  EXPECT_EQ(kept.oldest().sequence.rows(), 512);
  kept.retained.Touch(&kept.oldest().sequence);
  kept.Displace(kept.Make(1024, 20000, {}));
  // The one that was used is not the oldest any more.
  std::vector<KeyId> first_ids;
  for (const KeptConversation& each : kept.retained.all()) {
    first_ids.push_back(each.sequence.ids[0]);
  }
  EXPECT_THAT(first_ids, ElementsAre(9000, 1, 20000));
}

TEST(RetainedTest, ThePinBudgetMovesTheOldestHeadToThePark) {
  RetentionBudgets budgets;
  budgets.pin_bytes = 6 * kBytes + 2 * kSection;
  Kept kept({.budgets = budgets});
  kept.Displace(kept.Make(2048, 1, {1024}), {.shared_rows = 1024});
  kept.Displace(kept.Make(2048, 5000, {1024}), {.shared_rows = 1024});
  EXPECT_EQ(kept.oldest().pinned_blocks, 2);
  EXPECT_EQ(kept.newest().pinned_blocks, 4);
  EXPECT_EQ(kept.oldest().sequence.rows(), 2048);
  // A head longer than the budget: as much of it as that holds.
  kept.Displace(kept.Make(4096, 9000, {512}), {.shared_rows = 4096});
  EXPECT_EQ(kept.newest().pinned_blocks, 6);
}

TEST(RetainedTest, WithoutBudgetsNothingIsKept) {
  Kept kept({.budgets = {.stash_bytes = 0, .pin_bytes = 0, .park_bytes = 0}});
  kept.Displace(kept.Make(2048, 1, {1024}), {.shared_rows = 1024});
  kept.retained.KeepGuest(kept.Make(512, 5000, {512}, RetentionClass::kGuest));
  EXPECT_THAT(kept.retained.all(), IsEmpty());
  kept.Check();
  EXPECT_EQ(kept.pool.counts().free, 64);
  EXPECT_EQ(kept.slots.live(), 0);
}

TEST(RetainedTest, AGuestKeepsNoEndAndPaysFromTheStash) {
  RetentionBudgets budgets;
  budgets.stash_bytes = 5 * kBytes + 4 * kSection;
  Kept kept({.budgets = budgets});
  kept.retained.KeepGuest(kept.Make(700, 1, {600}, RetentionClass::kGuest));
  EXPECT_EQ(kept.newest().sequence.rows(), 600);
  EXPECT_EQ(kept.newest().sequence.sections, nullptr);
  EXPECT_EQ(kept.pool.held(RetentionClass::kGuest), 3);
  kept.Check();
  // A second one takes the room of the first.
  kept.retained.KeepGuest(kept.Make(700, 5000, {600}, RetentionClass::kGuest));
  EXPECT_EQ(kept.retained.all().size(), 1u);
  kept.Check();
  // The same again adds nothing.
  kept.retained.KeepGuest(kept.Make(700, 5000, {600}, RetentionClass::kGuest));
  EXPECT_EQ(kept.retained.all().size(), 1u);
  EXPECT_EQ(kept.retained.counters().guests, 3u);
  kept.Check();
}

TEST(RetainedTest, WhoComesBackTakesItsAnchorsAndItsRecordAway) {
  Kept kept;
  kept.Displace(kept.Make(1500, 1, {512, 1024}));
  Sequence back = kept.Make(1600, 1, {});
  back.anchors = kept.newest().sequence.anchors;
  kept.retained.Inherit(back);
  EXPECT_THAT(kept.retained.all(), IsEmpty());
  EXPECT_EQ(kept.slots.live(RetentionClass::kResident), 2);
  kept.Check({&back});
}

TEST(RetainedTest, ABranchThatItDoesNotContainStays) {
  Kept kept;
  kept.Displace(kept.Make(1500, 1, {512, 1024, 1400}));
  Sequence edited = kept.Fork(kept.newest().sequence, 1024);
  edited.anchors = {kept.newest().sequence.anchors[0],
                    kept.newest().sequence.anchors[1]};
  edited.ids.push_back(7);
  kept.retained.Inherit(edited);
  ASSERT_EQ(kept.retained.all().size(), 1u);
  EXPECT_THAT(Kept::Anchors(kept.newest()), ElementsAre(1400));
  EXPECT_NE(kept.newest().sequence.sections, nullptr);
  EXPECT_EQ(kept.pool.held(RetentionClass::kParked), 2);  // past the shared
}

TEST(RetainedTest, BlocksAreGivenLowestClassFirstAndFromTheTail) {
  Kept kept({.recurrent = false});
  kept.Displace(kept.Make(1024, 1, {}), {.shared_rows = 512});
  kept.Displace(kept.Make(1024, 5000, {}), {.shared_rows = 512});
  kept.retained.KeepGuest(kept.Make(512, 9000, {}, RetentionClass::kGuest));
  const auto rows = [&] {
    std::vector<int> rows;
    for (const KeptConversation& each : kept.retained.all()) {
      rows.push_back(each.sequence.rows());
    }
    return rows;
  };
  const std::vector<std::vector<int>> expected = {
      {1024, 1024, 256}, {1024, 1024}, {768, 1024}, {512, 1024}, {512, 768},
      {512, 512},        {256, 512},   {512},       {256},       {}};
  for (const std::vector<int>& want : expected) {
    EXPECT_TRUE(kept.retained.GiveBlock());
    EXPECT_EQ(rows(), want);
    kept.Check();
  }
  EXPECT_FALSE(kept.retained.GiveBlock());
}

TEST(RetainedTest, GivingStopsAtTheClassThatIsAsked) {
  Kept kept({.recurrent = false});
  kept.Displace(kept.Make(1024, 1, {}), {.shared_rows = 512});
  while (kept.retained.GiveBlock(RetentionClass::kParked)) {
  }
  ASSERT_EQ(kept.retained.all().size(), 1u);
  EXPECT_EQ(kept.newest().sequence.rows(), 512);
}

TEST(RetainedTest, OnAGridSessionRowsGoWithTheEnd) {
  Kept kept({.exactness = kernels::Exactness::kGrid});
  Sequence a = kept.Make(3000, 1, {1024, 2048});
  a.taint = 2500;
  a.table.MarkSession(2500 / kBlockTokens);
  a.session_key = "a";
  kept.Displace(std::move(a), {.shared_rows = 2900});
  EXPECT_EQ(kept.newest().pinned_blocks, 8);  // up to the last line
  EXPECT_EQ(kept.newest().sequence.taint, 2500);
  EXPECT_TRUE(kept.retained.GiveBlock());
  EXPECT_EQ(kept.newest().sequence.rows(), 2048);
  EXPECT_EQ(kept.newest().sequence.taint, kUntainted);
  kept.Check();
}

TEST(RetainedTest, ALongConversationIsReportedOnceBeforeItLosesRows) {
  RetentionBudgets budgets;
  budgets.spill_min_tokens = 2000;
  Kept kept({.budgets = budgets});
  std::vector<int> reported;
  kept.retained.OnLoss([&reported](const Sequence& sequence) {
    reported.push_back(sequence.rows());
    EXPECT_NE(sequence.sections, nullptr);
  });
  kept.Displace(kept.Make(1999, 1, {1024}));
  kept.Displace(kept.Make(2000, 5000, {1024}));
  EXPECT_THAT(reported, IsEmpty());
  while (kept.retained.GiveBlock()) {
  }
  EXPECT_THAT(reported, ElementsAre(2000));
}

TEST(RetainedTest, OfOneSessionAndInAllOnlySoManyAreKept) {
  Kept kept({.blocks = 200, .recurrent = false});
  for (int i = 0; i < kMaxBranches + 2; ++i) {
    Sequence a = kept.Make(300, 1000 * i, {});
    a.session_key = "a";
    kept.Displace(std::move(a));
  }
  EXPECT_EQ(kept.retained.all().size(), std::size_t{kMaxBranches});
  EXPECT_EQ(kept.oldest().sequence.ids[0], 2000u);
  for (int i = 0; i < kMaxKept + 2; ++i) {
    kept.Displace(kept.Make(100, 100000 + 1000 * i, {}));
  }
  EXPECT_EQ(kept.retained.all().size(), std::size_t{kMaxKept});
}

// Any order of displacements, guests, returns and shortages: no block leaks,
// and the budgets hold after each.
TEST(RetainedTest, AnyOrderKeepsTheBudgets) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const auto upto = [&random](int n) {
      return static_cast<int>(random() % static_cast<unsigned>(n));
    };
    Shape shape{.blocks = 96, .recurrent = random() % 2 == 0};
    if (random() % 2 == 0) shape.exactness = kernels::Exactness::kGrid;
    shape.budgets.stash_bytes = upto(12) * kBytes;
    shape.budgets.pin_bytes = upto(16) * kBytes;
    shape.budgets.park_bytes = upto(24) * kBytes;
    Kept kept(shape);
    for (int step = 0; step < 60; ++step) {
      // Four families of prompts, so that some share their beginning.
      const int rows = 1 + upto(5000);
      const bool guest = random() % 4 == 0;
      std::vector<int> anchors;
      for (int at = kGrid; at <= rows; at += kGrid) {
        if (random() % 4 != 0) anchors.push_back(at);
      }
      while (kept.pool.counts().free + kept.pool.counts().cached <
             rows / kBlockTokens + 1) {
        ASSERT_TRUE(kept.retained.GiveBlock());
      }
      Sequence sequence =
          kept.Make(rows, 100000 * upto(4), anchors,
                    guest ? RetentionClass::kGuest : RetentionClass::kResident);
      sequence.session_key = std::string(1, static_cast<char>('a' + upto(3)));
      sequence.head = upto(3000);
      if (shape.exactness == kernels::Exactness::kGrid && random() % 2 == 0) {
        sequence.taint = std::max(1, rows - upto(400));
        sequence.table.MarkSession(sequence.taint / kBlockTokens);
        std::erase_if(sequence.anchors, [&](const AnchorRef& anchor) {
          return anchor->position > sequence.taint;
        });
      }
      if (guest) {
        sequence.taint = kUntainted;
        kept.retained.KeepGuest(std::move(sequence));
      } else {
        kept.retained.Inherit(sequence);
        kept.Check({&sequence});
        if (::testing::Test::HasFailure()) FAIL() << seed << " step " << step;
        kept.Displace(std::move(sequence), {.shared_rows = upto(rows + 1),
                                            .same_session = random() % 3 == 0});
      }
      kept.Check();
      if (::testing::Test::HasFailure()) FAIL() << seed << " step " << step;
    }
    kept.retained.Clear();
    EXPECT_EQ(kept.pool.counts().free, shape.blocks);
    EXPECT_EQ(kept.slots.live(), 0);
  }
}

}  // namespace
}  // namespace holdfast::engine
