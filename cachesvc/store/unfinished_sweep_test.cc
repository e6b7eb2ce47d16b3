// What is written and cleared while the start has not come to every file.
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cachesvc/format/names.h"
#include "cachesvc/store/testing/store_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

using testing::MakeAnchor;
using testing::MakeSession;
using testing::OwnedWrite;
using testing::PromptIds;
using testing::ReadBack;
using testing::StoreWorld;

// Every look at it takes `step`.
class SteppingClock final : public Clock {
 public:
  std::chrono::steady_clock::time_point Now() override {
    const std::lock_guard lock(mutex_);
    return now_ += step_;
  }
  void SleepUntil(std::chrono::steady_clock::time_point) override {}
  void set_step(std::chrono::milliseconds step) {
    const std::lock_guard lock(mutex_);
    step_ = step;
  }

 private:
  std::mutex mutex_;
  std::chrono::steady_clock::time_point now_ = std::chrono::steady_clock::now();
  std::chrono::milliseconds step_{0};
};

class UnfinishedSweepTest : public ::testing::Test {
 protected:
  UnfinishedSweepTest() {
    world_.options.sweep_limit = std::chrono::milliseconds(2);
    Open();
  }
  ~UnfinishedSweepTest() override { EXPECT_EQ(world_.Unaccounted(), ""); }

  void Open() {
    auto opened = ChunkStore::Open(
        {world_.fs, *world_.pool, *world_.index, clock_}, world_.options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    world_.store = *std::move(opened);
    world_.store->SetAttached(testing::Fingerprint("model"));
  }
  // A start that comes to none of the files without a row.
  void OpenUnfinished() {
    world_.Close();
    clock_.set_step(std::chrono::milliseconds(1));
    Open();
    EXPECT_GT(store().sweep_report().left_for_later, 0u);
    EXPECT_EQ(world_.Unaccounted(), "");
  }
  void LoseIndex() {
    world_.Close();
    world_.fake_index.Erase();
  }
  void Finish() {
    clock_.set_step(std::chrono::milliseconds(0));
    ASSERT_TRUE(store().Maintain().ok());
    EXPECT_EQ(store().Use().unadopted_bytes, 0u);
  }
  FileKey Write(const OwnedWrite& write) {
    const auto result = world_.store->WriteManifest(write.write);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->file_key : FileKey{};
  }
  ChunkStore& store() { return *world_.store; }
  bool Has(const FileKey& key) { return store().ShowManifest(key).has_value(); }
  std::size_t Files(FileKind kind) {
    return world_.fs.Names("/cache/" + FolderOf(kind)).size();
  }

  StoreWorld world_;
  SteppingClock clock_;
};

TEST_F(UnfinishedSweepTest, ASessionWrittenMeanwhileIsTheNewest) {
  for (int turn = 0; turn < 3; ++turn) {
    Write(*MakeSession(PromptIds(512, 1, 1100 + 100 * turn), "s"));
  }
  const FileKey old = Write(*MakeSession(PromptIds(512, 1, 1500), "s"));
  ASSERT_TRUE(store().SetPinned(old, true).ok());
  LoseIndex();
  OpenUnfinished();
  EXPECT_FALSE(Has(old));
  const auto next = MakeSession(PromptIds(512, 1, 1600), "s");
  const FileKey key = Write(*next);
  EXPECT_EQ(world_.Unaccounted(), "");
  Finish();
  EXPECT_FALSE(Has(old));
  ASSERT_TRUE(Has(key));
  EXPECT_TRUE(store().ShowManifest(key)->pinned);
  EXPECT_TRUE(ReadBack(store(), *next, key, 1600).ok());
  EXPECT_EQ(Files(FileKind::kSession), 1u);
}

// The machine goes down before the start has come to the old one: the next
// start has both before it.
TEST_F(UnfinishedSweepTest, ItIsTheNewestForTheNextStartToo) {
  Write(*MakeSession(PromptIds(512, 1, 1100), "s"));
  const FileKey old = Write(*MakeSession(PromptIds(512, 1, 1200), "s"));
  LoseIndex();
  OpenUnfinished();
  const FileKey key = Write(*MakeSession(PromptIds(512, 1, 1300), "s"));
  EXPECT_EQ(Files(FileKind::kSession), 2u);
  LoseIndex();
  clock_.set_step(std::chrono::milliseconds(0));
  Open();
  EXPECT_FALSE(Has(old));
  EXPECT_TRUE(Has(key));
}

TEST_F(UnfinishedSweepTest, WhatIsClearedDoesNotComeBack) {
  const FileKey anchor = Write(*MakeAnchor(PromptIds(1024, 1, 1024)));
  const FileKey session = Write(*MakeSession(PromptIds(1024, 1, 1300), "s"));
  LoseIndex();
  OpenUnfinished();
  EXPECT_EQ(store().Clear(FileKind::kAnchor, false).value(), 1u);
  EXPECT_EQ(world_.Unaccounted(), "");
  EXPECT_EQ(Files(FileKind::kAnchor), 0u);
  EXPECT_EQ(store().Clear(FileKind::kSession, false).value(), 1u);
  EXPECT_EQ(store().counters().cleared, 2u);
  Finish();
  EXPECT_FALSE(Has(anchor));
  EXPECT_FALSE(Has(session));
  EXPECT_EQ(Files(FileKind::kChunk), 0u);
}

TEST_F(UnfinishedSweepTest, OfForeignFilesThoseAlone) {
  const FileKey ours = Write(*MakeAnchor(PromptIds(0, 1, 512)));
  const FileKey theirs = Write(*MakeAnchor(PromptIds(0, 1, 512), "another"));
  LoseIndex();
  OpenUnfinished();
  EXPECT_EQ(store().Clear(FileKind::kAnchor, true).value(), 1u);
  EXPECT_EQ(Files(FileKind::kAnchor), 1u);
  Finish();
  EXPECT_TRUE(Has(ours));
  EXPECT_FALSE(Has(theirs));
}

// A manifest that waits for a chunk has a row.
TEST_F(UnfinishedSweepTest, WhatWaitsForAChunkIsClearedToo) {
  const FileKey key = Write(*MakeAnchor(PromptIds(0, 1, 1024)));
  world_.Close();
  world_.fake_index.FlipBits(Table::kChunks);
  OpenUnfinished();
  EXPECT_FALSE(Has(key));
  EXPECT_EQ(store().Clear(FileKind::kAnchor, false).value(), 1u);
  Finish();
  EXPECT_FALSE(Has(key));
  world_.Close();
  Open();
  EXPECT_FALSE(Has(key));
}

TEST_F(UnfinishedSweepTest, AFileRewrittenMeanwhileIsNotTheOneThatWasListed) {
  const auto anchor = MakeAnchor(PromptIds(0, 1, 1024));
  const FileKey key = Write(*anchor);
  const FileKey chunk = store().ListChunks().front().file_key;
  world_.Close();
  // Of another size than its row says.
  const std::string path = "/cache/" + FolderOf(FileKind::kChunk) + "/" +
                           FileName(FileKind::kChunk, chunk);
  ASSERT_TRUE(world_.fs.Unlink(path).ok());
  ASSERT_TRUE(world_.fs.Open(path, OpenMode::kCreate).ok());
  OpenUnfinished();
  EXPECT_FALSE(Has(key));
  EXPECT_EQ(Write(*anchor), key);
  EXPECT_EQ(world_.Unaccounted(), "");
  EXPECT_TRUE(ReadBack(store(), *anchor, key, 1024).ok());
  Finish();
  EXPECT_TRUE(Has(key));
  EXPECT_TRUE(ReadBack(store(), *anchor, key, 1024).ok());
  EXPECT_EQ(store().counters().corrupt_files, 0u);
  world_.Close();
  Open();
  EXPECT_TRUE(ReadBack(store(), *anchor, key, 1024).ok());
}

// Chunks of anchors are charged to the spill until their anchors are there:
// nobody is evicted for that.
TEST_F(UnfinishedSweepTest, NobodyIsEvictedBeforeItIsKnownWhoPays) {
  const FileKey anchor = Write(*MakeAnchor(PromptIds(0, 1, 4096)));
  StoreLimits limits = store().limits();
  limits.spill_budget_bytes = store().Use().disk_bytes / 2;
  ASSERT_TRUE(store().SetLimits(limits).ok());
  LoseIndex();
  world_.options.sweep_limit = std::chrono::milliseconds(4);
  OpenUnfinished();
  const auto session = MakeSession(PromptIds(0, 2, 300), "s");
  const FileKey key = Write(*session);
  // A few files at a time.
  for (int minute = 0; minute < 3; ++minute) {
    ASSERT_TRUE(store().Maintain().ok());
    EXPECT_TRUE(Has(key));
    EXPECT_GT(store().Use().unadopted_bytes, 0u);
  }
  EXPECT_GT(store().Use().spill_bytes, store().limits().spill_budget_bytes);
  Finish();
  EXPECT_TRUE(Has(key));
  EXPECT_TRUE(Has(anchor));
  EXPECT_TRUE(ReadBack(store(), *session, key, 300).ok());
}

TEST_F(UnfinishedSweepTest, BothBudgetsTogetherHoldMeanwhile) {
  Write(*MakeAnchor(PromptIds(0, 1, 2048)));
  StoreLimits limits = store().limits();
  limits.disk_budget_bytes = store().Use().charged_bytes() + 1000;
  limits.spill_budget_bytes = 1000;
  ASSERT_TRUE(store().SetLimits(limits).ok());
  LoseIndex();
  OpenUnfinished();
  EXPECT_EQ(store()
                .WriteManifest(MakeSession(PromptIds(0, 2, 600), "s")->write)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store().counters().refused_budget, 1u);
  EXPECT_EQ(world_.Unaccounted(), "");
  Finish();
  EXPECT_EQ(store().Use().anchors, 1u);
}

// A chunk that was adopted may be of an anchor that waits: a write that shares
// it and fails, or what it shares it with going again, does not take it along.
TEST_F(UnfinishedSweepTest, AWriteThatFailsTakesNoChunkOfWhatWaits) {
  const auto anchor = MakeAnchor(PromptIds(0, 1, 4096));
  const FileKey key = Write(*anchor);
  LoseIndex();
  world_.options.sweep_limit = std::chrono::milliseconds(4);
  OpenUnfinished();
  for (int minute = 0; minute < 3; ++minute) {
    ASSERT_TRUE(store().Maintain().ok());
  }
  ASSERT_GT(store().Use().chunks, 0u);
  ASSERT_GT(store().Use().unadopted_bytes, 0u);
  auto session = MakeSession(anchor->ids, "s");
  session->write.still_leased = [] { return false; };
  EXPECT_FALSE(store().WriteManifest(session->write).ok());
  session->write.still_leased = nullptr;
  const FileKey second = Write(*session);
  ASSERT_TRUE(store().Evict(std::span(&second, 1)).ok());
  EXPECT_EQ(store().EvictBytes(FileKind::kSession, 1).status().code(),
            absl::StatusCode::kFailedPrecondition);
  Finish();
  ASSERT_TRUE(Has(key));
  EXPECT_TRUE(ReadBack(store(), *anchor, key, 4096).ok());
}

// A disk without an answer, a process with too many files: no damage.
TEST_F(UnfinishedSweepTest, AFileThatCannotBeReadNowIsReadLater) {
  const auto anchor = MakeAnchor(PromptIds(0, 1, 512));
  const auto session = MakeSession(PromptIds(0, 2, 600), "s");
  const FileKey keys[] = {Write(*anchor), Write(*session)};
  LoseIndex();
  OpenUnfinished();
  clock_.set_step(std::chrono::milliseconds(0));
  for (int round = 0; round < 2; ++round) {
    world_.faults.FailCalls("open /cache/s", EMFILE);
    (void)store().Maintain();
    EXPECT_EQ(world_.Unaccounted(), "");
    EXPECT_GT(store().Use().unadopted_bytes, 0u);
    // Which number its file would have is not known.
    EXPECT_FALSE(
        store()
            .WriteManifest(MakeSession(PromptIds(0, 2, 700), "s")->write)
            .ok());
    world_.faults.Clear();
  }
  Finish();
  for (const FileKey& key : keys) EXPECT_TRUE(Has(key));
  EXPECT_EQ(store().counters().corrupt_files, 0u);
  EXPECT_TRUE(ReadBack(store(), *session, keys[1], 600).ok());
}

TEST_F(UnfinishedSweepTest, OneThatIsNeverReadGoesAtLast) {
  Write(*MakeAnchor(PromptIds(0, 1, 512)));
  LoseIndex();
  OpenUnfinished();
  clock_.set_step(std::chrono::milliseconds(0));
  world_.faults.FailCalls("open /cache/", EIO);
  for (int round = 0; round < 3; ++round) (void)store().Maintain();
  world_.faults.Clear();
  ASSERT_TRUE(store().Maintain().ok());
  EXPECT_EQ(store().Use().unadopted_bytes, 0u);
  EXPECT_EQ(Files(FileKind::kAnchor) + Files(FileKind::kChunk), 0u);
  EXPECT_EQ(store().counters().corrupt_files, 2u);
}

// Whatever fails in the sweep's end: what is to go is charged, and goes later,
// and what stays has its rows.
TEST_F(UnfinishedSweepTest, AnEndThatFailsIsCarriedOut) {
  Write(*MakeAnchor(PromptIds(0, 1, 512)));
  Write(*MakeAnchor(PromptIds(0, 2, 512)));
  const FileKey chunk = store().ListChunks().front().file_key;
  ASSERT_TRUE(world_.fs
                  .Unlink("/cache/" + FolderOf(FileKind::kChunk) + "/" +
                          FileName(FileKind::kChunk, chunk))
                  .ok());
  std::int64_t calls = 1;
  for (std::int64_t k = 0; k < calls; ++k) {
    SCOPED_TRACE(k);
    LoseIndex();
    OpenUnfinished();
    clock_.set_step(std::chrono::milliseconds(0));
    world_.faults.FailAt(k, ENOSPC);
    (void)store().Maintain();
    calls = world_.faults.calls();
    world_.faults.Clear();
    EXPECT_EQ(world_.Unaccounted(), "");
    Finish();
    EXPECT_EQ(store().Use().condemned_bytes, 0u);
    world_.Close();
    Open();
    EXPECT_EQ(store().Use().anchors, 1u);
    EXPECT_EQ(store().sweep_report().adopted, 0u);
    EXPECT_EQ(Files(FileKind::kAnchor) + Files(FileKind::kChunk), 2u);
  }
}

}  // namespace
}  // namespace holdfast::cachesvc
