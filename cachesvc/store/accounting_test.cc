// Every byte on the disk is charged to a budget.
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "cachesvc/format/names.h"
#include "cachesvc/store/settings.h"
#include "cachesvc/store/testing/store_world.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

using testing::MakeAnchor;
using testing::MakeSession;
using testing::OwnedWrite;
using testing::PromptIds;
using testing::StoreWorld;

class AccountingTest : public ::testing::Test {
 protected:
  AccountingTest() { EXPECT_TRUE(world_.Open().ok()); }
  ~AccountingTest() override { EXPECT_EQ(world_.Unaccounted(), ""); }

  FileKey Write(const OwnedWrite& write) {
    const auto result = store().WriteManifest(write.write);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->file_key : FileKey{};
  }
  std::unique_ptr<Restore> Open(const OwnedWrite& written, const FileKey& key) {
    auto restore =
        Restore::Open(store(),
                      {.fingerprint = written.write.fingerprint,
                       .manifest = key,
                       .position = written.ids.size(),
                       .key_ids = written.ids},
                      std::chrono::steady_clock::now() + std::chrono::hours(1));
    EXPECT_TRUE(restore.ok()) << restore.status();
    return restore.ok() ? *std::move(restore) : nullptr;
  }
  void SetBudget(std::uint64_t bytes) {
    StoreLimits limits = store().limits();
    limits.disk_budget_bytes = bytes;
    ASSERT_TRUE(store().SetLimits(limits).ok());
  }
  ChunkStore& store() { return *world_.store; }
  bool Has(const FileKey& key) { return store().ShowManifest(key).has_value(); }

  StoreWorld world_;
};

TEST_F(AccountingTest, TheIndexAndTheLedgerAreInTheDiskTiersBudget) {
  const FileKey first = Write(*MakeAnchor(PromptIds(0, 1, 512)));
  Write(*MakeAnchor(PromptIds(0, 2, 512)));
  store().NoteUse(first);
  const std::uint64_t files = store().Use().disk_bytes;
  EXPECT_GT(store().Use().ledger_bytes, 0u);
  EXPECT_EQ(store().Use().charged_bytes(), files + store().Use().ledger_bytes);
  SetBudget(files + store().Use().ledger_bytes);
  EXPECT_EQ(store().Use().anchors, 2u);
  // It has grown, or a damaged one lies beside it.
  world_.fake_index.disk_bytes = 5000;
  EXPECT_EQ(store().Use().index_bytes, 5000u);
  ASSERT_TRUE(store().Maintain().ok());
  EXPECT_EQ(store().Use().anchors, 1u);
  EXPECT_TRUE(Has(first));
  EXPECT_LE(store().Use().charged_bytes(), store().limits().disk_budget_bytes);
  // An index that leaves no room: nothing goes for what cannot fit.
  world_.fake_index.disk_bytes = files;
  EXPECT_EQ(store()
                .WriteManifest(MakeAnchor(PromptIds(0, 3, 512))->write)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(AccountingTest, ADeletedFileCountsWhileARestoreReadsIt) {
  const auto anchor = MakeAnchor(PromptIds(0, 1, 1024));
  const FileKey key = Write(*anchor);
  const std::uint64_t bytes = store().Use().disk_bytes;
  auto restore = Open(*anchor, key);
  ASSERT_TRUE(store().Evict(std::span(&key, 1)).ok());
  EXPECT_EQ(store().Use().disk_bytes, 0u);
  EXPECT_EQ(store().Use().held_bytes, bytes);
  EXPECT_EQ(store().Use().charged_bytes(), bytes + store().Use().ledger_bytes);
  restore.reset();
  EXPECT_EQ(store().Use().held_bytes, 0u);
}

TEST_F(AccountingTest, WhatIsBeingReadIsNoVictim) {
  const auto first = MakeAnchor(PromptIds(0, 1, 512));
  const FileKey key = Write(*first);
  const std::uint64_t size = store().Use().disk_bytes;
  const FileKey second = Write(*MakeAnchor(PromptIds(0, 2, 512)));
  store().NoteUse(second);
  auto restore = Open(*first, key);
  SetBudget(size + store().Use().ledger_bytes + 1000);
  EXPECT_TRUE(Has(key));
  EXPECT_FALSE(Has(second));
  // It is alone, and stays until it is read.
  SetBudget(1000);
  EXPECT_TRUE(Has(key));
  restore.reset();
  ASSERT_TRUE(store().Maintain().ok());
  EXPECT_FALSE(Has(key));
}

TEST_F(AccountingTest, FilesOfOtherNamesCount) {
  world_.Close();
  const std::string path = "/cache/" + FolderOf(FileKind::kChunk) + "/notes";
  ASSERT_TRUE((*world_.fs.Open(path, OpenMode::kCreate))->Allocate(8192).ok());
  ASSERT_TRUE(world_.Open().ok());
  EXPECT_EQ(store().sweep_report().unknown_names, 1u);
  EXPECT_EQ(store().Use().unknown_bytes, 8192u);
  EXPECT_EQ(world_.Unaccounted(), "");
}

TEST_F(AccountingTest, TemporariesThatCannotBeUnlinkedCount) {
  world_.faults.FailCalls("unlink ", EIO);
  const auto write = MakeAnchor(PromptIds(0, 1, 1024));
  bool leased = true;
  // The second chunk is given up.
  write->write.still_leased = [&] { return std::exchange(leased, false); };
  EXPECT_TRUE(absl::IsAborted(store().WriteManifest(write->write).status()));
  EXPECT_GT(store().Use().condemned_bytes, 0u);
  EXPECT_EQ(world_.Unaccounted(), "");
  // The next start finds them, and cannot either.
  world_.Close();
  ASSERT_TRUE(world_.Open().ok());
  EXPECT_GT(store().Use().condemned_bytes, 0u);
  EXPECT_EQ(world_.Unaccounted(), "");
  world_.faults.Clear();
  ASSERT_TRUE(store().Maintain().ok());
  EXPECT_EQ(store().Use().condemned_bytes, 0u);
}

// Files that went behind the store's back leave nothing that only grows.
TEST_F(AccountingTest, UsesAndPinsGoWithTheirFiles) {
  const FileKey key = Write(*MakeAnchor(PromptIds(0, 1, 512)));
  const FileKey kept = Write(*MakeAnchor(PromptIds(0, 2, 512)));
  for (const FileKey& pinned : {key, kept}) {
    store().NoteUse(pinned);
    ASSERT_TRUE(store().SetPinned(pinned, true).ok());
  }
  ASSERT_TRUE(store().Maintain().ok());
  world_.Close();
  ASSERT_TRUE(world_.fs
                  .Unlink("/cache/" + FolderOf(FileKind::kAnchor) + "/" +
                          FileName(FileKind::kAnchor, key))
                  .ok());
  ASSERT_TRUE(world_.Open().ok());
  EXPECT_EQ(LoadPins(*world_.index)->size(), 1u);
  const auto uses = LoadUses(*world_.index, nullptr);
  EXPECT_EQ(uses->size(), 1u);
  EXPECT_EQ(uses->count(kept), 1u);
}

// While nobody knows what is on the disk, nothing is added to it.
TEST_F(AccountingTest, ARebuildThatCannotBeginRefusesAnchorsToo) {
  Write(*MakeAnchor(PromptIds(0, 1, 512)));
  world_.faults.FailCalls("list ", EIO);
  EXPECT_FALSE(store().RebuildIndex().ok());
  EXPECT_EQ(store()
                .WriteManifest(MakeAnchor(PromptIds(0, 2, 512))->write)
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
  world_.faults.Clear();
  ASSERT_TRUE(store().Maintain().ok());
  EXPECT_EQ(store().Use().anchors, 1u);
}

}  // namespace
}  // namespace holdfast::cachesvc
