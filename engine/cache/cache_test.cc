// The parts around the tiers that need no request.
#include <algorithm>
#include <chrono>
#include <vector>

#include "engine/cache/first_costs.h"
#include "engine/cache/leases.h"
#include "engine/cache/lending.h"
#include "engine/cache/planner_costs.h"
#include "engine/cache/state_image.h"
#include "engine/cache/tier_plan.h"
#include "engine/cache/tiering.h"
#include "engine/model/model.h"
#include "engine/pool/block_table.h"
#include "engine/testing/fake_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

std::vector<int> Positions(const TierPlan& plan) {
  std::vector<int> positions;
  for (const TierOffer& offer : plan.offers) {
    positions.push_back(offer.candidate.position);
  }
  return positions;
}

TierCandidate At(Tier tier, int position, std::uint64_t bytes) {
  return {.tier = tier, .key = {}, .position = position, .bytes = bytes};
}

TEST(PlannerCostsTest, FixedOnesAreReadFromText) {
  const auto costs =
      ParsePlannerCosts("disk=100,prefill=50,store=1000,spill=10");
  ASSERT_TRUE(costs.ok());
  EXPECT_DOUBLE_EQ((*costs)->PrefillSeconds(100, 200), 2);
  EXPECT_DOUBLE_EQ((*costs)->ReadSeconds(Tier::kDisk, 200'000'000), 2);
  EXPECT_DOUBLE_EQ((*costs)->ReadSeconds(Tier::kSpill, 10'000'000), 1);
  (*costs)->MeasuredPrefill(1000, 1);
  EXPECT_DOUBLE_EQ((*costs)->PrefillSeconds(100, 200), 2);
  for (const char* bad :
       {"", "prefill=1", "prefill=1,store=1,disk=1,spill=0",
        "prefill=1,store=1,disk=1,spill=x", "prefill,store=1,disk=1,spill=1",
        "prefill=1,store=1,disk=1,spill=1,more=1",
        "prefill=1,store=1,disk=1,spill=inf"}) {
    EXPECT_FALSE(ParsePlannerCosts(bad).ok()) << bad;
  }
}

TEST(PlannerCostsTest, MeasuredOnesFollow) {
  const auto costs = MakeMeasuredCosts();
  costs->MeasuredPrefill(1000, 0.5);
  EXPECT_DOUBLE_EQ(costs->PrefillSeconds(0, 2000), 1);
  costs->MeasuredPrefill(1, 100);  // says nothing
  EXPECT_DOUBLE_EQ(costs->PrefillSeconds(0, 2000), 1);
  costs->MeasuredRead(Tier::kDisk, 100'000'000, 0.1);
  EXPECT_DOUBLE_EQ(costs->ReadSeconds(Tier::kDisk, 1'000'000'000), 1);
  EXPECT_DOUBLE_EQ(costs->ReadSeconds(Tier::kSpill, 1'000'000'000), 1);
}

TEST(PlannerCostsTest, AnEarlierEnginesCountUntilThereAreOwn) {
  const auto costs = MakeMeasuredCosts({.prefill_tokens = 500});
  EXPECT_DOUBLE_EQ(costs->PrefillSeconds(0, 500), 1);
  EXPECT_EQ(costs->Measured(), PlannerRates());  // a guess is not passed on
  const PlannerRates earlier{.prefill_tokens = 100,
                             .read_bytes = {0, 200'000'000, 0}};
  costs->Remember(earlier);
  EXPECT_DOUBLE_EQ(costs->PrefillSeconds(0, 500), 5);
  EXPECT_DOUBLE_EQ(costs->ReadSeconds(Tier::kDisk, 200'000'000), 1);
  EXPECT_EQ(costs->Measured(), earlier);
  costs->Remember({.prefill_tokens = 7, .read_bytes = {7, 7, 0}});
  EXPECT_EQ(costs->Measured().prefill_tokens, 100);
  EXPECT_EQ(costs->Measured().read_bytes[0], 7);
  // Measurements go on from what is remembered.
  costs->MeasuredPrefill(1000, 5);
  EXPECT_DOUBLE_EQ(costs->Measured().prefill_tokens, 125);
  EXPECT_DOUBLE_EQ(costs->Used().prefill_tokens, 125);
  EXPECT_GT(costs->Used().read_bytes[2], 0);
  // Fixed ones neither learn nor tell.
  const auto fixed = *ParsePlannerCosts("prefill=1,store=1,disk=1,spill=1");
  fixed->Remember(earlier);
  EXPECT_DOUBLE_EQ(fixed->PrefillSeconds(0, 1), 1);
  EXPECT_EQ(fixed->Measured(), PlannerRates());
}

TEST(FirstCostsTest, MeasuresOnlyWhatNobodyRemembers) {
  int measured = 0;
  const auto measure = [&measured]() -> absl::StatusOr<double> {
    ++measured;
    return 1234;
  };
  const auto known = FirstCosts({.prefill_tokens = 500}, measure);
  EXPECT_EQ(measured, 0);
  EXPECT_EQ(known->Used().prefill_tokens, 500);
  const PlannerRates rates{.prefill_tokens = 0, .read_bytes = {0, 77, 0}};
  const auto first = FirstCosts(rates, measure);
  EXPECT_EQ(measured, 1);
  EXPECT_EQ(first->Used().prefill_tokens, 1234);
  EXPECT_EQ(first->Used().read_bytes[1], 77);
}

TEST(FirstCostsTest, AFailureIsNoReasonNotToStart) {
  const auto costs = FirstCosts({}, []() -> absl::StatusOr<double> {
    return absl::InternalError("the device said no");
  });
  EXPECT_EQ(costs->Used(), MakeMeasuredCosts()->Used());
  EXPECT_GT(costs->Used().prefill_tokens, 0);
}

TEST(TierPlanTest, TheLeastTimeComesFirst) {
  const auto costs =
      *ParsePlannerCosts("prefill=1000,store=1000,disk=100,spill=100");
  // Both save more than they cost; the deeper one is cheaper in all.
  EXPECT_THAT(Positions(PlanTiers(*costs,
                                  {At(Tier::kDisk, 4096, 50'000'000),
                                   At(Tier::kDisk, 2048, 20'000'000)},
                                  0, 5000)),
              ::testing::ElementsAre(4096, 2048));
  // Deeper, but so large that the shallower one is faster in all.
  EXPECT_THAT(Positions(PlanTiers(*costs,
                                  {At(Tier::kDisk, 4096, 390'000'000),
                                   At(Tier::kDisk, 2048, 20'000'000)},
                                  0, 5000)),
              ::testing::ElementsAre(2048, 4096));
  // The pool starts as deep.
  const TierPlan none =
      PlanTiers(*costs, {At(Tier::kDisk, 2048, 1)}, 2048, 5000);
  EXPECT_TRUE(none.offers.empty());
  EXPECT_TRUE(none.too_costly.empty());
  // Reading costs what computing does.
  const TierPlan dear =
      PlanTiers(*costs, {At(Tier::kDisk, 1000, 100'000'000)}, 0, 5000);
  EXPECT_TRUE(dear.offers.empty());
  EXPECT_EQ(dear.too_costly.size(), 1u);
  EXPECT_EQ(DescribePlan(dear, 0),
            "in_place@0; disk@1000 too_costly bytes=100000000 read_ms=1000.0 "
            "total_ms=5000.0");
  // Of equals the shallower tier.
  const TierPlan equal = PlanTiers(
      *costs,
      {At(Tier::kSpill, 1000, 1'000'000), At(Tier::kDisk, 1000, 1'000'000)}, 0,
      5000);
  EXPECT_EQ(equal.offers[0].candidate.tier, Tier::kDisk);
}

TEST(TierPlanTest, LosersAreToldAndCounted) {
  const auto costs =
      *ParsePlannerCosts("prefill=1000,store=1000,disk=100,spill=100");
  const TierPlan plan = PlanTiers(
      *costs,
      {At(Tier::kDisk, 4096, 50'000'000), At(Tier::kStore, 2048, 20'000'000),
       At(Tier::kSpill, 1024, 900'000'000)},
      256, 5000);
  EXPECT_EQ(DescribePlan(plan, 256),
            "in_place@256; disk@4096 chosen bytes=50000000 read_ms=500.0 "
            "total_ms=1404.0, store@2048 later bytes=20000000 read_ms=20.0 "
            "total_ms=2972.0, spill@1024 too_costly bytes=900000000 "
            "read_ms=9000.0 total_ms=12976.0");
  TierCounters counters;
  counters.CountPlan(plan);
  counters.CountPlan({});  // nothing was offered
  EXPECT_EQ(counters.of(Tier::kDisk).chosen, 1u);
  EXPECT_EQ(counters.of(Tier::kStore).lost, 1u);
  EXPECT_EQ(counters.of(Tier::kSpill).too_costly, 1u);
  EXPECT_EQ(counters.chose_in_place, 0u);
  counters.CountPlan(
      PlanTiers(*costs, {At(Tier::kSpill, 1024, 900'000'000)}, 256, 5000));
  EXPECT_EQ(counters.chose_in_place, 1u);

  TierPlan many;
  many.offers.assign(20, {At(Tier::kDisk, 1024, 1), 0, 0});
  EXPECT_THAT(DescribePlan(many, 0), ::testing::HasSubstr(", 4 more"));
}

class LeasesTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 4096;
  AlignedBytes memory_ = AllocateAligned(8 * kBytes);
  BlockPool pool_{memory_.get(), kBytes, 8};
  std::vector<std::uint64_t> table_ =
      std::vector<std::uint64_t>(kLeaseTableBytes / 8, 7);
  Leases leases_{reinterpret_cast<std::byte*>(table_.data()), pool_};
};

TEST_F(LeasesTest, TheTableSaysWhatLasts) {
  EXPECT_TRUE(
      std::ranges::all_of(std::span(table_).first(kLeaseSlots),
                          [](std::uint64_t word) { return word == 0; }));
  const BlockId block = pool_.Allocate();
  const auto now = steady_clock::now();
  const auto lease = leases_.Grant({block}, now + seconds(10));
  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(table_[lease->slot], lease->generation);
  EXPECT_EQ(pool_.references(block), 2);
  pool_.Unref(block, BlockPool::Touch::kNo);
  leases_.Collect(now);
  EXPECT_TRUE(leases_.Lasts(*lease));
  leases_.returns()->Add(*lease);
  leases_.returns()->Add(*lease);  // told twice
  leases_.Collect(now);
  EXPECT_FALSE(leases_.Lasts(*lease));
  EXPECT_EQ(table_[lease->slot], 0u);
  EXPECT_EQ(pool_.counts().free, 8);
  EXPECT_EQ(leases_.revoked(), 0u);
  // The slot is used again, under another generation.
  const auto next = leases_.Grant({}, now);
  EXPECT_EQ(next->slot, lease->slot);
  EXPECT_GT(next->generation, lease->generation);
  leases_.returns()->Add(*lease);  // late
  leases_.Collect(now - seconds(1));
  EXPECT_TRUE(leases_.Lasts(*next));
  leases_.Collect(now);  // its deadline
  EXPECT_FALSE(leases_.Lasts(*next));
  EXPECT_EQ(leases_.revoked(), 1u);
}

TEST_F(LeasesTest, AwaitedOnesAreLeftToEndByThemselves) {
  const auto now = std::chrono::steady_clock::now();
  const BlockId block = pool_.Allocate();
  const auto awaited = leases_.Grant({block}, now + seconds(10));
  const auto other = leases_.Grant({block}, now + seconds(10));
  ASSERT_TRUE(awaited && other);
  leases_.Await(*awaited);
  leases_.Await(*awaited);
  EXPECT_EQ(leases_.awaited(), 1);
  EXPECT_EQ(leases_.RevokePool(), 1);
  EXPECT_TRUE(leases_.Lasts(*awaited));
  EXPECT_FALSE(leases_.Lasts(*other));
  leases_.returns()->Add(*awaited);
  leases_.Collect(now);
  EXPECT_EQ(leases_.awaited(), 0);
  leases_.Await(*awaited);  // has ended
  EXPECT_EQ(leases_.awaited(), 0);
  pool_.Unref(block, BlockPool::Touch::kNo);
}

TEST_F(LeasesTest, SlotsAreBounded) {
  const auto later = steady_clock::now() + seconds(10);
  for (std::uint32_t i = 0; i < kLeaseSlots; ++i) {
    EXPECT_TRUE(leases_.Grant({}, later).has_value());
  }
  EXPECT_FALSE(leases_.Grant({}, later).has_value());
  EXPECT_EQ(leases_.RevokeAll(), static_cast<int>(kLeaseSlots));
  EXPECT_EQ(leases_.live(), 0);
}

TEST(LendingTest, TheHostLendsItsBlocksAndADeviceCopies) {
  constexpr std::size_t kBytes = 4096;
  const AlignedBytes memory = AllocateAligned(4 * kBytes);
  BlockPool pool(memory.get(), kBytes, 4);
  const std::vector<BlockId> blocks = {pool.Allocate(), pool.Allocate()};
  for (const BlockId block : blocks) {
    std::fill_n(pool.data(block), kBytes, std::byte(block + 1));
  }
  Lending own(pool);
  EXPECT_EQ(own.Lend(blocks), blocks);
  EXPECT_EQ(pool.references(blocks[0]), 2);
  own.Release(blocks);
  EXPECT_EQ(pool.references(blocks[0]), 1);

  testing::FakeBackend backend;
  const AlignedBytes shared = AllocateAligned(3 * kBytes);
  Lending copies(pool, backend, shared.get(), 3);
  const auto lent = copies.Lend(blocks);
  ASSERT_TRUE(lent.has_value());
  EXPECT_EQ(pool.references(blocks[0]), 1);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(*copies.pool().data((*lent)[i]), std::byte(blocks[i] + 1));
  }
  EXPECT_FALSE(copies.Lend(blocks).has_value());  // one of three is left
  EXPECT_EQ(copies.pool().counts().free, 1);
  copies.Release(*lent);
  EXPECT_EQ(copies.pool().counts().free, 3);
}

TEST(LendingTest, ADeviceLendsItsBlocksWhileTheyAreMapped) {
  constexpr std::size_t kBytes = 4096;
  const AlignedBytes memory = AllocateAligned(4 * kBytes);
  const AlignedBytes shared = AllocateAligned(3 * kBytes);
  BlockPool pool(memory.get(), kBytes, 4);
  const std::vector<BlockId> blocks = {pool.Allocate(), pool.Allocate()};
  testing::FakeBackend backend;
  bool mapped = true;
  Lending lending(pool, backend, shared.get(), 3, [&] { return mapped; });
  std::vector<std::uint64_t> table(kLeaseTableBytes / 8);
  Leases leases(reinterpret_cast<std::byte*>(table.data()), lending.numbers());
  const auto later = steady_clock::now() + seconds(10);

  // Behind the three of host memory, where no copy is made.
  const auto lent = lending.Lend(blocks);
  ASSERT_TRUE(lent.has_value());
  EXPECT_EQ(*lent, (std::vector<BlockId>{3 + blocks[0], 3 + blocks[1]}));
  EXPECT_EQ(lending.pool().counts().free, 3);
  EXPECT_EQ(pool.references(blocks[0]), 2);
  const BlockId state = lending.pool().AllocateFree();
  std::vector<BlockId> all = *lent;
  all.push_back(state);
  ASSERT_TRUE(leases.Grant(all, later).has_value());
  lending.Release(all);
  EXPECT_EQ(pool.references(blocks[0]), 2);  // the lease's
  EXPECT_EQ(lending.pool().counts().free, 2);

  mapped = false;
  const auto copies = lending.Lend(blocks);
  ASSERT_TRUE(copies.has_value());
  EXPECT_EQ(pool.references(blocks[0]), 2);
  ASSERT_TRUE(leases.Grant(*copies, later).has_value());
  lending.Release(*copies);
  // Copies keep nothing from requests.
  EXPECT_EQ(leases.RevokePool(), 1);
  EXPECT_EQ(pool.references(blocks[0]), 1);
  EXPECT_EQ(lending.pool().counts().free, 1);
  EXPECT_EQ(leases.RevokePool(), 0);
  EXPECT_EQ(leases.RevokeAll(), 1);
  EXPECT_EQ(lending.pool().counts().free, 3);
}

TEST(StateImageTest, SectionsComeBack) {
  CacheLayout layout;
  layout.views = {{"K", 16, 1}};
  layout.sections = {{"a", 100}, {"b", 5000}, {"h_last", 12}};
  ASSERT_EQ(StateImageBytes(layout), 4096u + 8192u + 4096u);
  const std::size_t bytes = model::ComputeSectionOffsets(layout).bytes;
  const AlignedBytes sections = AllocateAligned(bytes);
  std::fill_n(sections.get(), bytes, std::byte{0});
  const auto places = model::ComputeSectionOffsets(layout);
  for (std::size_t i = 0; i < 3; ++i) {
    std::fill_n(sections.get() + places.offsets[i], layout.sections[i].bytes,
                std::byte(i + 1));
  }
  const AlignedBytes memory = AllocateAligned(8 * layout.BlockBytes());
  std::fill_n(memory.get(), 8 * layout.BlockBytes(), std::byte{0xA5});
  BlockPool pool(memory.get(), layout.BlockBytes(), 8);
  testing::FakeBackend backend;
  const auto blocks = StageState(layout, backend, sections.get(), pool, false);
  ASSERT_TRUE(blocks.has_value());
  std::vector<std::byte> image;
  for (const BlockId block : *blocks) {
    image.insert(image.end(), pool.data(block),
                 pool.data(block) + pool.block_bytes());
  }
  image.resize(StateImageBytes(layout));
  const AlignedBytes back = AllocateAligned(bytes);
  std::fill_n(back.get(), bytes, std::byte{0x77});
  ASSERT_TRUE(ReadStateImage(layout, image, backend, back.get()).ok());
  EXPECT_TRUE(std::equal(back.get(), back.get() + bytes, sections.get()));
  // Too few blocks: none stays taken.
  for (const BlockId block : *blocks) pool.Unref(block, BlockPool::Touch::kNo);
  while (pool.counts().free >= static_cast<int>(blocks->size())) {
    (void)pool.AllocateFree();
  }
  const int free = pool.counts().free;
  EXPECT_FALSE(
      StageState(layout, backend, sections.get(), pool, true).has_value());
  EXPECT_EQ(pool.counts().free, free);
}

}  // namespace
}  // namespace holdfast::engine
