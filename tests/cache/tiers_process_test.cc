// Every tier through real processes, with bytes that no model computes: what
// comes back is what was stored, whoever dies, stops or comes late.
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine/cache/record_source.h"
#include "gtest/gtest.h"
#include "shared/attach/test_peers.h"
#include "shared/cache_layout.h"
#include "tests/cache/pool_of_bytes.h"
#include "tests/cache/service_process.h"

namespace holdfast::testing {
namespace {

using attach::TestDir;
using engine::StoreOutcome;
using engine::Tier;
using engine::TierCandidate;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLong{60};

std::vector<KeyId> Ids(int count, KeyId first) {
  std::vector<KeyId> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// Qwen3.8-Flash-Next's: a grid of 4,096 tokens, 29,952 bytes a token,
// 115,662,864 bytes of sections, under names that nothing else has.
CacheLayout FlashNextSizes() {
  CacheLayout layout;
  layout.views = {{"attention_K(12)", 12288, 12},
                  {"V/", 12288, 12},
                  {"indexer.keys", 3072, 12},
                  {"draft-layer's_own", 2304, 1}};
  layout.sections = {{"36xS", 113'246'208},
                     {"36xconv-tail", 2'359'296},
                     {"n-gram:conv", 24'576},
                     {"n-gram:context", 16},
                     {"mtp.h_last", 32'768}};
  layout.grid_tokens = 4096;
  return layout;
}

// Large blocks, so that a restore takes many pieces.
CacheLayout ManyPieces() {
  CacheLayout layout;
  layout.views = {{"a", 16384, 4}, {"b", 1, 1}};
  layout.sections = {{"h_last", 100}, {"s", 5'000'001}};
  layout.grid_tokens = 1024;
  return layout;
}

class TiersProcessTest : public ::testing::Test {
 protected:
  std::unique_ptr<PoolOfBytes> Attach(const CacheLayout& layout, int blocks,
                                      std::uint8_t fingerprint = 1) {
    auto pool =
        std::make_unique<PoolOfBytes>(layout, blocks, run_dir_, fingerprint);
    EXPECT_TRUE(pool->WaitAttached());
    return pool;
  }
  void ExpectComesBack(PoolOfBytes& pool, Tier tier, const Conversation& of,
                       int position) {
    SCOPED_TRACE(std::string(engine::TierName(tier)) + " at " +
                 std::to_string(position));
    const auto found = pool.Find(tier, of, position);
    ASSERT_TRUE(found);
    Restored restored = pool.Restore(*found, of, kLong);
    EXPECT_TRUE(restored.status.ok()) << restored.status;
    EXPECT_EQ(pool.Compare(restored, of, position), "");
    pool.Release(restored);
  }
  // A stopped service that goes on needs a moment; the client asks nobody for
  // a while after a late answer.
  std::optional<TierCandidate> FindSoon(PoolOfBytes& pool, Tier tier,
                                        const Conversation& of, int position) {
    const auto until = std::chrono::steady_clock::now() + kLong;
    while (std::chrono::steady_clock::now() < until) {
      if (auto found = pool.Find(tier, of, position)) return found;
      std::this_thread::sleep_for(milliseconds(20));
    }
    return std::nullopt;
  }

  TestDir dir_;
  const std::string run_dir_ = dir_.path() + "/run";
  ServiceProcess service_{HOLDFAST_CACHED,
                          run_dir_,
                          dir_.path() + "/cache",
                          {"--disk-free-gb=0", "--allow-small-free-space",
                           "--store-gb=1", "--store-entry-gb=1"}};
};

TEST_F(TiersProcessTest, AnyLayoutPassesEveryTier) {
  const CacheLayout layout = FlashNextSizes();
  ASSERT_EQ(layout.RowBytes(), 29'952u);
  ASSERT_EQ(layout.SectionBytes(), 115'662'864u);
  const int grid = static_cast<int>(layout.grid_tokens);
  const Conversation head{
      .session_key = "a", .ids = Ids(grid, 5), .lines = {grid}, .seed = 1};
  Conversation live = head;
  live.ids = Ids(grid + 300, 5);
  live.taint = grid + 200;
  Conversation others = live;
  others.session_key = "b";
  auto pool = Attach(layout, 52);
  EXPECT_EQ(pool->Store(Tier::kDisk, head), StoreOutcome::kStored);
  EXPECT_EQ(pool->Store(Tier::kSpill, live), StoreOutcome::kStored);
  EXPECT_EQ(pool->Store(Tier::kStore, live), StoreOutcome::kStored);
  // The engine dies; the snapshot outlives it.
  pool.reset();
  pool = Attach(layout, 20);
  ExpectComesBack(*pool, Tier::kStore, live, grid + 300);
  ExpectComesBack(*pool, Tier::kStore, live, grid);
  EXPECT_FALSE(pool->Find(Tier::kStore, others, grid + 300));
  EXPECT_TRUE(pool->Find(Tier::kStore, others, grid));
  service_.End(SIGKILL);
  service_.Start();
  ASSERT_TRUE(FindSoon(*pool, Tier::kDisk, live, grid));
  ExpectComesBack(*pool, Tier::kDisk, live, grid);
  ExpectComesBack(*pool, Tier::kSpill, live, grid + 300);
  ExpectComesBack(*pool, Tier::kSpill, live, grid);
  EXPECT_FALSE(pool->Find(Tier::kSpill, others, grid + 300));
  EXPECT_TRUE(pool->Find(Tier::kSpill, others, grid));
}

// A machine that is short of memory: the engine asks for the store's.
TEST_F(TiersProcessTest, TheStateStoreIsGivenBack) {
  const Conversation of{.session_key = "a",
                        .ids = Ids(2 * 1024 + 100, 5),
                        .lines = {1024},
                        .seed = 7};
  const int end = static_cast<int>(of.ids.size());
  auto pool = Attach(ManyPieces(), 20);
  EXPECT_EQ(pool->tiers().FreeStore(1), 0u);
  ASSERT_EQ(pool->Store(Tier::kStore, of), StoreOutcome::kStored);
  ASSERT_TRUE(pool->Find(Tier::kStore, of, end));
  EXPECT_GT(pool->tiers().FreeStore(1), 0u);
  EXPECT_FALSE(pool->Find(Tier::kStore, of, end));
  EXPECT_EQ(pool->tiers().FreeStore(1), 0u);
}

// In mid-restore the cache service stops; the deadline passes, the blocks go to
// others; then it goes on.
TEST_F(TiersProcessTest, StoppedInMidRestore) {
  const Conversation of{.session_key = "a",
                        .ids = Ids(7 * 1024 + 100, 5),
                        .lines = {1024},
                        .seed = 3};
  const int end = static_cast<int>(of.ids.size());
  auto pool = Attach(ManyPieces(), 36);
  ASSERT_EQ(pool->Store(Tier::kSpill, of), StoreOutcome::kStored);
  for (const int stop_at : {1, 2, 5}) {
    const auto found = FindSoon(*pool, Tier::kSpill, of, end);
    ASSERT_TRUE(found);
    int calls = 0;
    Restored restored = pool->Restore(*found, of, milliseconds(1500), [&] {
      if (++calls == stop_at) service_.Signal(SIGSTOP);
      return false;
    });
    ASSERT_GE(calls, stop_at);
    EXPECT_TRUE(absl::IsDeadlineExceeded(restored.status)) << restored.status;
    pool->Release(restored);
    pool->FillWithOthers(std::byte{0x5A});
    const auto before = pool->Sums();
    service_.Signal(SIGCONT);
    // It answers again, so whatever it was about to do is done.
    ASSERT_TRUE(FindSoon(*pool, Tier::kSpill, of, end));
    EXPECT_TRUE(pool->Sums() == before);
    ExpectComesBack(*pool, Tier::kSpill, of, end);
  }
}

// A stopped cache service is told of a few records, then of none for a while.
TEST_F(TiersProcessTest, RecordsForAStoppedServiceAreBounded) {
  auto pool = Attach(ManyPieces(), 36);
  const auto counters = std::make_shared<engine::TierCounters>();
  engine::RecordSource records(pool->client(), milliseconds(20), counters);
  const std::vector<std::int32_t> ids(300, 7);
  const auto put = [&] { records.Put(PrefixKey{}, "a", ids, "record"); };
  service_.Signal(SIGSTOP);
  constexpr int kMore = 5;
  for (int i = 0; i < engine::RecordSource::kMostUnderWay + kMore; ++i) put();
  EXPECT_EQ(counters->records_under_way, engine::RecordSource::kMostUnderWay);
  EXPECT_EQ(counters->records_lost, std::uint64_t{kMore});
  std::promise<std::size_t> fetched;
  records.Fetch(PrefixKey{}, "a", [&](const std::vector<std::string>& found) {
    fetched.set_value(found.size());
  });
  EXPECT_EQ(fetched.get_future().get(), 0u);
  // It was late: nothing is asked, and nothing told.
  put();
  EXPECT_EQ(counters->records_lost, std::uint64_t{kMore + 1});
  service_.Signal(SIGCONT);
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (counters->records_under_way > 0 &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(counters->records_under_way, 0);
}

TEST_F(TiersProcessTest, KilledInMidRestore) {
  const Conversation of{.session_key = "a",
                        .ids = Ids(7 * 1024 + 100, 5),
                        .lines = {1024},
                        .seed = 4};
  const int end = static_cast<int>(of.ids.size());
  auto pool = Attach(ManyPieces(), 36);
  ASSERT_EQ(pool->Store(Tier::kSpill, of), StoreOutcome::kStored);
  for (const int kill_at : {1, 3}) {
    const auto found = FindSoon(*pool, Tier::kSpill, of, end);
    ASSERT_TRUE(found);
    int calls = 0;
    Restored restored = pool->Restore(*found, of, kLong, [&] {
      if (++calls == kill_at) service_.End(SIGKILL);
      return false;
    });
    ASSERT_GE(calls, kill_at);
    EXPECT_FALSE(restored.status.ok());
    pool->Release(restored);
    pool->FillWithOthers(std::byte{0x5A});
    const auto before = pool->Sums();
    service_.Start();
    ASSERT_TRUE(FindSoon(*pool, Tier::kSpill, of, end));
    EXPECT_TRUE(pool->Sums() == before);
    ExpectComesBack(*pool, Tier::kSpill, of, end);
  }
}

// What a planned stop left resident is told once, and not after a kill.
TEST_F(TiersProcessTest, ResidentsAreToldOnce) {
  const Conversation of{.session_key = "a",
                        .ids = Ids(1300, 5),
                        .taint = 1200,
                        .lines = {1024},
                        .seed = 5};
  auto pool = Attach(ManyPieces(), 20);
  ASSERT_EQ(pool->Store(Tier::kSpill, of, /*resident=*/true),
            StoreOutcome::kStored);
  pool.reset();  // it died before its stop had ended
  pool = Attach(ManyPieces(), 20);
  EXPECT_TRUE(pool->tiers().Residents().empty());
  ASSERT_EQ(pool->Store(Tier::kSpill, of, /*resident=*/true),
            StoreOutcome::kStored);
  pool->tiers().Drained();
  pool.reset();
  service_.End(SIGKILL);
  service_.Start();
  // Another model in between takes nothing away.
  pool = Attach(ManyPieces(), 20, /*fingerprint=*/2);
  EXPECT_TRUE(pool->tiers().Residents().empty());
  pool.reset();
  pool = Attach(ManyPieces(), 20);
  const auto residents = pool->tiers().Residents();
  ASSERT_EQ(residents.size(), 1u);
  EXPECT_EQ(residents[0].ids, of.ids);
  EXPECT_EQ(residents[0].session_key, "a");
  EXPECT_EQ(residents[0].candidate.taint, 1200);
  EXPECT_EQ(residents[0].lines, std::vector<int>{1024});
  Restored restored = pool->Restore(residents[0].candidate, of, kLong);
  EXPECT_EQ(pool->Compare(restored, of, 1300), "");
  pool->Release(restored);
  EXPECT_TRUE(pool->tiers().Residents().empty());
  pool.reset();
  pool = Attach(ManyPieces(), 20);
  EXPECT_TRUE(pool->tiers().Residents().empty());
  EXPECT_TRUE(pool->Find(Tier::kSpill, of, 1300));
}

// Two models in turn: each finds what it stored, the other sees nothing of it.
TEST_F(TiersProcessTest, TwoModelsInTurnKeepBothCaches) {
  const Conversation of{
      .session_key = "a", .ids = Ids(1024, 5), .lines = {1024}, .seed = 6};
  Conversation other = of;
  other.seed = 7;
  auto pool = Attach(ManyPieces(), 16, 1);
  ASSERT_EQ(pool->Store(Tier::kDisk, of), StoreOutcome::kStored);
  for (int turn = 0; turn < 2; ++turn) {
    pool.reset();
    pool = Attach(ManyPieces(), 16, 2);
    if (turn == 0) {
      EXPECT_FALSE(pool->Find(Tier::kDisk, other, 1024));
      ASSERT_EQ(pool->Store(Tier::kDisk, other), StoreOutcome::kStored);
    }
    ExpectComesBack(*pool, Tier::kDisk, other, 1024);
    pool.reset();
    pool = Attach(ManyPieces(), 16, 1);
    ExpectComesBack(*pool, Tier::kDisk, of, 1024);
  }
}

}  // namespace
}  // namespace holdfast::testing
