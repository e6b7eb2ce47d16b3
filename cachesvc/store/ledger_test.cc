// Settings and uses survive the loss of the index.
#include "cachesvc/store/ledger.h"

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "cachesvc/store/testing/store_world.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

using ::testing::ElementsAre;
using testing::Fingerprint;
using ::testing::IsEmpty;
using testing::MakeAnchor;
using testing::MakeSession;
using testing::PromptIds;
using testing::StoreWorld;

constexpr char kPath[] = "/cache/ledger";

Ledger Sample() {
  Ledger ledger;
  ledger.service_seconds = 123456;
  ledger.limits = StoreLimits{.disk_budget_bytes = 1,
                              .spill_budget_bytes = 2,
                              .ttl_s = 3,
                              .free_floor_bytes = 4};
  ledger.pins = {Fingerprint("pin 1"), Fingerprint("pin 2")};
  ledger.uses[Fingerprint("used")] = {7, 100};
  ledger.uses[Fingerprint("used too")] = {1, 99};
  ledger.residents[Fingerprint("model")] = {Fingerprint("z"), Fingerprint("a")};
  ledger.residents[Fingerprint("other")] = {Fingerprint("b")};
  return ledger;
}

TEST(LedgerTest, ComesBackAsItWas) {
  for (const Ledger& ledger : {Ledger(), Sample()}) {
    const AlignedBuffer bytes = EncodeLedger(ledger);
    const auto decoded = DecodeLedger(bytes.span());
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, ledger);
  }
}

TEST(LedgerTest, TheGoldenFileIsWhatIsWrittenToday) {
  std::ifstream file("tests/golden/cache/ledger.bin", std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  const AlignedBuffer bytes = EncodeLedger(Sample());
  const std::string written(reinterpret_cast<const char*>(bytes.data()),
                            bytes.size());
  EXPECT_TRUE(golden == written);
}

TEST(LedgerTest, AFlippedBitAnywhereIsSeen) {
  const AlignedBuffer good = EncodeLedger(Sample());
  const std::size_t used = 128 + 2 * 32 + 2 * 48 + 3 * 64;
  for (std::size_t bit = 0; bit < 8 * used; ++bit) {
    AlignedBuffer bytes(good.size());
    std::copy(good.data(), good.data() + good.size(), bytes.data());
    bytes.data()[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_TRUE(absl::IsDataLoss(DecodeLedger(bytes.span()).status()))
        << "bit " << bit;
  }
  for (const std::size_t size : {0, 100, 4095}) {
    EXPECT_TRUE(
        absl::IsDataLoss(DecodeLedger(good.span().first(size)).status()));
  }
}

// A store with something to remember, whose index can be lost.
class LedgerStoreTest : public ::testing::Test {
 protected:
  LedgerStoreTest()
      : anchor_(MakeAnchor(PromptIds(1024, 1, 1024))),
        session_(MakeSession(PromptIds(1024, 1, 1300), "s", 1100)) {
    EXPECT_TRUE(world_.Open().ok());
    anchor_key_ = Write(*anchor_);
    session_key_ = Write(*session_);
  }
  FileKey Write(const testing::OwnedWrite& write) {
    const auto result = world_.store->WriteManifest(write.write);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->file_key : FileKey{};
  }
  void LoseIndex() {
    for (int table = 0; table < kTables; ++table) {
      IndexBatch batch;
      EXPECT_TRUE(world_.fake_index
                      .Scan(static_cast<Table>(table),
                            [&](std::string_view key, std::string_view) {
                              batch.Delete(static_cast<Table>(table),
                                           std::string(key));
                              return true;
                            })
                      .ok());
      EXPECT_TRUE(world_.fake_index.Write(batch, Durability::kSynced).ok());
    }
  }
  void Restart(bool lose_index) {
    world_.Close();
    if (lose_index) LoseIndex();
    ASSERT_TRUE(world_.Open().ok());
    EXPECT_EQ(world_.Unaccounted(), "");
  }
  ChunkStore& store() { return *world_.store; }

  StoreWorld world_;
  std::unique_ptr<testing::OwnedWrite> anchor_;
  std::unique_ptr<testing::OwnedWrite> session_;
  FileKey anchor_key_{};
  FileKey session_key_{};
};

TEST_F(LedgerStoreTest, SettingsAndUsesSurviveTheLossOfTheIndex) {
  world_.clock.Advance(std::chrono::hours(50));
  store().NoteUse(anchor_key_);
  store().NoteUse(anchor_key_);
  ASSERT_TRUE(store().Maintain().ok());
  const std::uint64_t seconds = store().service_clock().Seconds();
  StoreLimits limits = store().limits();
  limits.ttl_s = 999'999;
  limits.disk_budget_bytes = 77'000'000;
  ASSERT_TRUE(store().SetLimits(limits).ok());
  ASSERT_TRUE(store().SetPinned(session_key_, true).ok());
  const FileKey resident = session_key_;
  ASSERT_TRUE(
      store().SetResidents(Fingerprint("model"), std::span(&resident, 1)).ok());
  for (const bool lose : {false, true, false, true}) {
    Restart(lose);
    EXPECT_EQ(store().sweep_report().from_ledger, lose);
    EXPECT_EQ(store().limits(), limits);
    EXPECT_TRUE(store().ShowManifest(session_key_)->pinned);
    EXPECT_FALSE(store().ShowManifest(anchor_key_)->pinned);
    EXPECT_EQ(store().ShowManifest(anchor_key_)->hits, 2u);
    EXPECT_EQ(store().ShowManifest(anchor_key_)->unused_s, 0u);
    EXPECT_EQ(store().service_clock().Seconds(), seconds);
  }
  EXPECT_THAT(*store().TakeResidents(Fingerprint("model"), Deadline::max()),
              ElementsAre(session_key_));
  Restart(/*lose_index=*/true);
  EXPECT_THAT(*store().TakeResidents(Fingerprint("model"), Deadline::max()),
              IsEmpty());
  ASSERT_TRUE(store().SetPinned(session_key_, false).ok());
  Restart(/*lose_index=*/true);
  EXPECT_FALSE(store().ShowManifest(session_key_)->pinned);
}

// A pin is the conversation's: its next file has it, also after a crash that
// lost the index.
TEST_F(LedgerStoreTest, APinFollowsASession) {
  ASSERT_TRUE(store().SetPinned(session_key_, true).ok());
  const auto longer = MakeSession(PromptIds(1024, 1, 1500), "s", 1100);
  const FileKey next = Write(*longer);
  EXPECT_FALSE(store().ShowManifest(session_key_));
  EXPECT_TRUE(store().ShowManifest(next)->pinned);
  const auto other = MakeSession(PromptIds(1024, 1, 1600), "t", 1100);
  EXPECT_FALSE(store().ShowManifest(Write(*other))->pinned);
  ASSERT_TRUE(store().Maintain().ok());
  for (const bool lose : {false, true}) {
    Restart(lose);
    EXPECT_TRUE(store().ShowManifest(next)->pinned);
  }
}

// What is deleted leaves the ledger too: a file that is written again later
// begins anew.
TEST_F(LedgerStoreTest, WhatWasDeletedIsForgotten) {
  store().NoteUse(anchor_key_);
  ASSERT_TRUE(store().SetPinned(anchor_key_, true).ok());
  ASSERT_TRUE(store().Maintain().ok());
  ASSERT_TRUE(store().Evict(std::span(&anchor_key_, 1)).ok());
  ASSERT_TRUE(store().Maintain().ok());
  Restart(/*lose_index=*/true);
  EXPECT_EQ(Write(*anchor_), anchor_key_);
  EXPECT_FALSE(store().ShowManifest(anchor_key_)->pinned);
  EXPECT_EQ(store().ShowManifest(anchor_key_)->hits, 0u);
}

TEST_F(LedgerStoreTest, ADamagedOneIsWrittenAnewFromTheIndex) {
  ASSERT_TRUE(store().SetPinned(session_key_, true).ok());
  world_.Close();
  world_.fs.FlipBit(kPath, 130 * 8);
  ASSERT_TRUE(world_.Open().ok());
  EXPECT_NE(store().sweep_report().ledger_error, "");
  EXPECT_EQ(store().counters().corrupt_files, 1u);
  EXPECT_TRUE(store().ShowManifest(session_key_)->pinned);
  Restart(/*lose_index=*/true);
  EXPECT_EQ(store().sweep_report().ledger_error, "");
  EXPECT_TRUE(store().ShowManifest(session_key_)->pinned);
}

// Both are lost: what the files say is left.
TEST_F(LedgerStoreTest, WithoutEitherTheFilesAreLeft) {
  ASSERT_TRUE(store().SetPinned(session_key_, true).ok());
  world_.Close();
  LoseIndex();
  world_.fs.FlipBit(kPath, 8);
  ASSERT_TRUE(world_.Open().ok());
  EXPECT_FALSE(store().sweep_report().from_ledger);
  ASSERT_TRUE(store().ShowManifest(session_key_));
  EXPECT_FALSE(store().ShowManifest(session_key_)->pinned);
}

// A read that fails is no damage: nothing is forgotten over it.
TEST_F(LedgerStoreTest, ADiskThatDoesNotReadIsNotTakenForALostLedger) {
  ASSERT_TRUE(store().SetPinned(session_key_, true).ok());
  world_.Close();
  LoseIndex();
  bool failed = false;
  for (std::int64_t k = 0; k < 60; ++k) {
    world_.faults.FailAt(k, EIO);
    const bool opened = world_.Open().ok();
    world_.faults.Clear();
    if (opened) {
      EXPECT_TRUE(store().ShowManifest(session_key_) == std::nullopt ||
                  store().ShowManifest(session_key_)->pinned)
          << k;
      world_.Close();
    } else {
      failed = true;
    }
  }
  EXPECT_TRUE(failed);
  ASSERT_TRUE(world_.Open().ok());
  EXPECT_TRUE(store().ShowManifest(session_key_)->pinned);
}

// A crash in a change leaves the older settings or the newer ones, each whole,
// with the index and without.
TEST_F(LedgerStoreTest, ACrashInAChange) {
  world_.faults.Clear();
  ASSERT_TRUE(store().SetPinned(session_key_, true).ok());
  const std::int64_t calls = world_.faults.calls();
  ASSERT_GE(calls, 5);
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    for (std::int64_t k = 0; k < calls; ++k) {
      SCOPED_TRACE(fmt::format("seed {}, call {}", seed, k));
      ASSERT_TRUE(store().SetPinned(anchor_key_, false).ok());
      ASSERT_TRUE(store().SetPinned(session_key_, true).ok());
      world_.faults.CrashAt(k);
      const bool done = store().SetPinned(anchor_key_, true).ok();
      ASSERT_TRUE(world_.Reboot(seed).ok());
      EXPECT_EQ(store().sweep_report().ledger_error, "");
      EXPECT_TRUE(store().ShowManifest(session_key_)->pinned);
      if (done) {
        EXPECT_TRUE(store().ShowManifest(anchor_key_)->pinned);
      }
      const bool pinned = store().ShowManifest(anchor_key_)->pinned;
      // What the start found is in both.
      Restart(/*lose_index=*/true);
      EXPECT_TRUE(store().ShowManifest(session_key_)->pinned);
      EXPECT_EQ(store().ShowManifest(anchor_key_)->pinned, pinned);
    }
  }
}

}  // namespace
}  // namespace holdfast::cachesvc
