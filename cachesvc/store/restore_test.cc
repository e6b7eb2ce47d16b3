// Damage, the sweep and rebuilding: what a restore may meet.
#include "cachesvc/store/restore.h"

#include <memory>
#include <string>
#include <vector>

#include "cachesvc/format/names.h"
#include "cachesvc/store/testing/store_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

using testing::Deepest;
using testing::MakeAnchor;
using testing::MakeSession;
using testing::OwnedWrite;
using testing::PromptIds;
using testing::ReadBack;
using testing::StoreWorld;

class RestoreTest : public ::testing::Test {
 protected:
  RestoreTest() { EXPECT_TRUE(world_.Open().ok()); }
  ~RestoreTest() override { EXPECT_EQ(world_.Unaccounted(), ""); }
  FileKey Write(const OwnedWrite& write) {
    const auto result = world_.store->WriteManifest(write.write);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->file_key : FileKey{};
  }
  ChunkStore& store() { return *world_.store; }
  bool Has(const FileKey& key) { return store().ShowManifest(key).has_value(); }
  std::string Path(FileKind kind, const FileKey& key) {
    return "/cache/" + FolderOf(kind) + "/" + FileName(kind, key);
  }
  StoreWorld world_;
};

// One bit in each region of each kind: header, tables, padding, payload.
TEST_F(RestoreTest, AFlippedBitAnywhereIsACountedMiss) {
  std::uint64_t corrupt = 0;
  for (const FileKind kind : kAllKinds) {
    for (const std::uint64_t byte :
         {0, 20, 50, 250, 300, 900, 4000, -1, -5000}) {
      const auto anchor = MakeAnchor(PromptIds(1024, 1, 1024));
      const auto session = MakeSession(PromptIds(1024, 1, 1100), "s");
      const FileKey a = Write(*anchor);
      const FileKey s = Write(*session);
      FileKey damaged = kind == FileKind::kAnchor ? a : s;
      if (kind == FileKind::kChunk) {
        for (const ChunkInfo& chunk : store().ListChunks()) {
          if (chunk.first_position == 512) damaged = chunk.file_key;
        }
      }
      const std::string path = Path(kind, damaged);
      const std::uint64_t size = world_.fs.Content(path).size();
      world_.fs.FlipBit(path, 8 * (byte < size ? byte : size + byte) + 3);
      const auto status_a = ReadBack(store(), *anchor, a, 1024);
      const auto status_s = ReadBack(store(), *session, s, 1100);
      const auto& hit = kind == FileKind::kSession ? status_s : status_a;
      EXPECT_EQ(hit.code(), absl::StatusCode::kDataLoss) << hit << byte;
      EXPECT_EQ(store().counters().corrupt_files, ++corrupt);
      EXPECT_EQ(Has(a), kind == FileKind::kSession);
      EXPECT_EQ(Has(s), kind == FileKind::kAnchor);
      EXPECT_FALSE(world_.fs.Exists(path));
      EXPECT_EQ(world_.Unaccounted(), "");
      // What does not need it still serves.
      EXPECT_EQ(status_a.ok(), kind == FileKind::kSession);
      EXPECT_EQ(status_s.ok(), kind == FileKind::kAnchor);
    }
  }
}

TEST_F(RestoreTest, AFileOfAnotherNameIsDamage) {
  const auto anchor = MakeAnchor(PromptIds(512, 1, 1024));
  const FileKey a = Write(*anchor);
  const auto other = MakeAnchor(PromptIds(512, 2, 1024));
  const FileKey b = Write(*other);
  ASSERT_TRUE(
      world_.fs.Rename(Path(FileKind::kAnchor, b), Path(FileKind::kAnchor, a))
          .ok());
  EXPECT_EQ(ReadBack(store(), *anchor, a, 1024).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadBack(store(), *other, b, 1024).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(store().counters().missing_files, 1u);
  EXPECT_EQ(store().Use().anchors, 0u);
}

// Two restores meet the same damage, and the file is written again between.
TEST_F(RestoreTest, WhoHoldsABadFileDoesNotSpeakForANewOne) {
  const auto anchor = MakeAnchor(PromptIds(0, 1, 512));
  const FileKey key = Write(*anchor);
  RestoreRequest request;
  request.fingerprint = anchor->write.fingerprint;
  request.manifest = key;
  request.position = 512;
  request.key_ids = anchor->ids;
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto restore = Restore::Open(store(), request, deadline);
  ASSERT_TRUE(restore.ok()) << restore.status();
  const FileKey chunk = store().ListChunks().front().file_key;
  const std::string path = Path(FileKind::kChunk, chunk);
  world_.fs.FlipBit(path, 8 * (world_.fs.Content(path).size() - 5000));
  EXPECT_EQ(ReadBack(store(), *anchor, key, 512).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(Write(*anchor), key);
  absl::Status status;
  for (std::size_t i = 0; status.ok() && i < (*restore)->pieces().size(); ++i) {
    const auto slot =
        std::make_shared<AlignedBuffer>((*restore)->pieces()[i].bytes);
    ASSERT_TRUE((*restore)->StartRead(i, slot->span(), slot).ok());
    status = (*restore)->FinishRead(i, deadline);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Has(key));
  EXPECT_TRUE(ReadBack(store(), *anchor, key, 512).ok());
  EXPECT_EQ(store().counters().corrupt_files, 1u);
}

TEST_F(RestoreTest, OtherKeyIdsAreAMissAndNoDamage) {
  const FileKey key = Write(*MakeAnchor(PromptIds(512, 1, 1024)));
  auto ids = PromptIds(512, 1, 1024);
  ids[1023] ^= 1;
  const auto other = MakeAnchor(ids);
  EXPECT_EQ(ReadBack(store(), *other, key, 1024).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store().counters().restore_mismatches, 1u);
  EXPECT_TRUE(Has(key));
  EXPECT_EQ(store().counters().restores, 0u);
}

TEST_F(RestoreTest, AnEvictionDoesNotBreakARestoreThatIsOpen) {
  const auto session = MakeSession(PromptIds(512, 1, 1300), "s");
  const FileKey key = Write(*session);
  RestoreRequest request;
  request.fingerprint = session->write.fingerprint;
  request.manifest = key;
  request.position = 1300;
  request.key_ids = session->ids;
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
  auto restore = Restore::Open(store(), request, deadline);
  ASSERT_TRUE(restore.ok()) << restore.status();
  EXPECT_EQ((*restore)->manifest().record, "record of s");
  EXPECT_EQ((*restore)->state().kind, StateKind::kEnd);
  EXPECT_EQ(store().Clear(FileKind::kSession, false).value(), 1u);
  for (std::size_t i = 0; i < (*restore)->pieces().size(); ++i) {
    const auto slot =
        std::make_shared<AlignedBuffer>((*restore)->pieces()[i].bytes);
    ASSERT_TRUE((*restore)->StartRead(i, slot->span(), slot).ok());
    EXPECT_TRUE((*restore)->FinishRead(i, deadline).ok());
  }
  EXPECT_EQ(store().counters().bytes_read, (*restore)->bytes());
  EXPECT_EQ(Restore::Open(store(), request, deadline).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(RestoreTest, AnIoErrorIsAMissAndDeletesNothing) {
  const auto anchor = MakeAnchor(PromptIds(0, 1, 512));
  const FileKey key = Write(*anchor);
  world_.faults.Clear();
  ASSERT_TRUE(ReadBack(store(), *anchor, key, 512).ok());
  const auto calls = world_.faults.calls();
  for (std::int64_t k = 0; k < calls; ++k) {
    world_.faults.FailAt(k, EIO);
    EXPECT_FALSE(ReadBack(store(), *anchor, key, 512).ok());
  }
  world_.faults.Clear();
  EXPECT_GE(store().counters().restore_errors, 3u);
  EXPECT_TRUE(ReadBack(store(), *anchor, key, 512).ok());
}

TEST_F(RestoreTest, PiecesOfALargeLayout) {
  // Blocks that end inside a MiB, states that begin inside one.
  CacheLayout layout;
  layout.views = {{"K", 2600, 4}, {"odd", 1501, 1}};
  layout.sections = {{"S", 1'500'000}, {"h_last", 2048}};
  layout.grid_tokens = 1024;
  const auto session =
      MakeSession(PromptIds(0, 1, 2500), "s", kNoTaint, 0, "model", layout);
  const FileKey key = Write(*session);
  for (const std::uint64_t position : {1024, 2048, 2500}) {
    const auto status = ReadBack(store(), *session, key, position);
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_F(RestoreTest, VerifyFindsWhatIsBad) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const FileKey key = Write(*MakeAnchor(PromptIds(0, 1, 1024)));
  EXPECT_TRUE(store().Verify(key, true, deadline).ok());
  const auto chunk = store().ListChunks().front().file_key;
  world_.fs.FlipBit(Path(FileKind::kChunk, chunk), 8 * 9000);
  EXPECT_EQ(store().Verify(key, false, deadline).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Has(key));
  EXPECT_EQ(store().Verify(key, true, deadline).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_FALSE(Has(key));
  EXPECT_EQ(store().Verify(key, true, deadline).code(),
            absl::StatusCode::kNotFound);
}

// ---- the sweep

TEST_F(RestoreTest, ALostIndexIsRebuiltFromTheFiles) {
  const auto anchor = MakeAnchor(PromptIds(1024, 1, 1024));
  const auto session = MakeSession(PromptIds(1024, 1, 1300), "chat", 1100);
  const FileKey a = Write(*anchor);
  const FileKey s = Write(*session);
  const auto before = store().ListManifests().size();
  world_.Close();
  world_.fake_index.Erase();
  ASSERT_TRUE(world_.Open().ok());
  EXPECT_EQ(store().sweep_report().adopted, 5u);
  EXPECT_EQ(store().ListManifests().size(), before);
  EXPECT_EQ(store().ShowManifest(s)->session_key, "chat");
  EXPECT_EQ(store().ShowManifest(s)->taint, 1100u);
  EXPECT_EQ(Deepest(store(), *session)->position, 1300u);
  EXPECT_TRUE(ReadBack(store(), *anchor, a, 1024).ok());
  EXPECT_TRUE(ReadBack(store(), *session, s, 1300).ok());
  const auto report = store().RebuildIndex();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->adopted, 5u);
  EXPECT_TRUE(ReadBack(store(), *session, s, 1300).ok());
  ASSERT_TRUE(world_.Reboot(0).ok());
  EXPECT_EQ(store().sweep_report().rows, 5u);
}

TEST_F(RestoreTest, DamagedRowsAreCountedAndTheirFilesAdopted) {
  const auto anchor = MakeAnchor(PromptIds(0, 1, 1024));
  const FileKey key = Write(*anchor);
  for (const Table table : {Table::kChunks, Table::kAnchors}) {
    world_.Close();
    world_.fake_index.FlipBits(table);
    ASSERT_TRUE(world_.Open().ok());
    EXPECT_EQ(store().sweep_report().corrupt_rows,
              table == Table::kChunks ? 2u : 1u);
    EXPECT_EQ(store().counters().corrupt_rows,
              store().sweep_report().corrupt_rows);
    EXPECT_TRUE(ReadBack(store(), *anchor, key, 1024).ok());
  }
  // Of counters: the counters are lost, nothing else.
  store().NoteUse(key);
  ASSERT_TRUE(store().Maintain().ok());
  world_.Close();
  world_.fake_index.FlipBits(Table::kHits);
  world_.fake_index.FlipBits(Table::kMeta);
  ASSERT_TRUE(world_.Open().ok());
  EXPECT_EQ(store().ShowManifest(key)->hits, 0u);
}

TEST_F(RestoreTest, TheSweepRemovesWhatIsIncomplete) {
  const FileKey whole = Write(*MakeAnchor(PromptIds(0, 1, 1024)));
  const FileKey broken = Write(*MakeAnchor(PromptIds(0, 2, 1024)));
  FileKey lost{};
  for (const ChunkInfo& chunk : store().ListChunks()) lost = chunk.file_key;
  world_.Close();
  // A chunk's file is gone; a stranger's file, a temporary, a bad orphan and a
  // truncated file are there.
  ASSERT_TRUE(world_.fs.Unlink(Path(FileKind::kChunk, lost)).ok());
  ASSERT_TRUE(world_.fs.Open("/cache/tmp/x.tmp", OpenMode::kCreate).ok());
  ASSERT_TRUE(
      world_.fs.Open(Path(FileKind::kAnchor, lost), OpenMode::kCreate).ok());
  ASSERT_TRUE(world_.Open().ok());
  const SweepReport& report = store().sweep_report();
  EXPECT_EQ(report.temporaries, 1u);
  EXPECT_EQ(report.dangling_rows, 1u);
  EXPECT_EQ(report.incomplete_manifests, 1u);
  EXPECT_EQ(report.unreferenced_chunks, 1u);
  EXPECT_EQ(report.corrupt_files, 1u);
  EXPECT_NE(Has(whole), Has(broken));
  EXPECT_EQ(store().Use().chunks, 2u);
}

TEST_F(RestoreTest, ALongSweepGoesOnLater) {
  const auto anchor = MakeAnchor(PromptIds(0, 1, 1024));
  const FileKey key = Write(*anchor);
  world_.Close();
  world_.fake_index.Erase();
  world_.options.sweep_limit = std::chrono::milliseconds(0);
  ASSERT_TRUE(world_.Open().ok());
  EXPECT_EQ(store().sweep_report().left_for_later, 3u);
  EXPECT_FALSE(Has(key));
  // Not known yet, and counted all the same.
  EXPECT_EQ(world_.Unaccounted(), "");
  EXPECT_GT(store().Use().unadopted_bytes, 0u);
  // Writing what an orphan holds is harmless.
  EXPECT_EQ(Write(*anchor), key);
  world_.Close();
  world_.options.sweep_limit = std::chrono::milliseconds(3000);
  ASSERT_TRUE(world_.Open().ok());
  EXPECT_TRUE(ReadBack(store(), *anchor, key, 1024).ok());
}

}  // namespace
}  // namespace holdfast::cachesvc
