#include "cachesvc/store/chunk_store.h"

#include <chrono>
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
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeAnchor;
using testing::MakeSession;
using testing::OwnedWrite;
using testing::PromptIds;
using testing::ReadBack;
using testing::StoreWorld;

constexpr std::uint64_t kDay = 86400;

class ChunkStoreTest : public ::testing::Test {
 protected:
  ChunkStoreTest() { EXPECT_TRUE(world_.Open().ok()); }
  ~ChunkStoreTest() override { EXPECT_EQ(world_.Unaccounted(), ""); }

  FileKey Write(const OwnedWrite& write) {
    const auto result = world_.store->WriteManifest(write.write);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->file_key : FileKey{};
  }
  ChunkStore& store() { return *world_.store; }
  std::string Path(FileKind kind, const FileKey& key) {
    return "/cache/" + FolderOf(kind) + "/" + FileName(kind, key);
  }
  std::size_t Files(FileKind kind) {
    return world_.fs.Names("/cache/" + FolderOf(kind)).size();
  }
  bool Has(const FileKey& key) { return store().ShowManifest(key).has_value(); }

  StoreWorld world_;
};

TEST_F(ChunkStoreTest, AnAnchorComesBackAfterARestart) {
  const auto anchor = MakeAnchor(PromptIds(1024, 1, 1024));
  const FileKey key = Write(*anchor);
  EXPECT_EQ(Files(FileKind::kChunk), 2u);
  for (int run = 0; run < 2; ++run) {
    const auto found = Deepest(store(), *anchor);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->file_key, key);
    EXPECT_EQ(found->kind, FileKind::kAnchor);
    EXPECT_EQ(found->position, 1024u);
    EXPECT_TRUE(ReadBack(store(), *anchor, key, 1024).ok());
    ASSERT_TRUE(world_.Reboot(0).ok());
  }
  EXPECT_EQ(store().sweep_report().rows, 3u);
  EXPECT_EQ(store().sweep_report().adopted, 0u);
}

TEST_F(ChunkStoreTest, PromptsShareTheChunksOfTheirHead) {
  Write(*MakeAnchor(PromptIds(1024, 1, 1024)));
  const auto longer = MakeAnchor(PromptIds(1024, 2, 1536));
  const auto result = store().WriteManifest(longer->write);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->chunks_shared, 2u);
  EXPECT_EQ(result->chunks_written, 1u);
  EXPECT_EQ(Files(FileKind::kChunk), 3u);
  EXPECT_TRUE(ReadBack(store(), *longer, result->file_key, 1536).ok());
  // A third prompt of the same head finds the shorter anchor.
  const auto other = MakeAnchor(PromptIds(1024, 3, 1536));
  EXPECT_EQ(Deepest(store(), *other)->position, 1024u);
  const auto again = store().WriteManifest(longer->write);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->was_there);
}

TEST_F(ChunkStoreTest, ASharedChunkSurvivesTheEvictionOfEither) {
  const auto anchor = MakeAnchor(PromptIds(1024, 1, 1024));
  const auto session = MakeSession(PromptIds(1024, 1, 1300), "s");
  for (const bool drop_anchor : {true, false}) {
    const FileKey a = Write(*anchor);
    const FileKey s = Write(*session);
    EXPECT_EQ(Files(FileKind::kChunk), 3u);
    const FileKey gone = drop_anchor ? a : s;
    EXPECT_EQ(store().Evict(std::span(&gone, 1)).value(), 1u);
    if (drop_anchor) {
      EXPECT_TRUE(ReadBack(store(), *session, s, 1300).ok());
      EXPECT_EQ(store().Use().disk_bytes, 0u);
    } else {
      EXPECT_TRUE(ReadBack(store(), *anchor, a, 1024).ok());
      EXPECT_EQ(store().Use().spill_bytes, 0u);
      EXPECT_EQ(Files(FileKind::kChunk), 2u);
    }
    const FileKey rest = drop_anchor ? s : a;
    EXPECT_EQ(store().Evict(std::span(&rest, 1)).value(), 1u);
    EXPECT_EQ(Files(FileKind::kChunk), 0u);
  }
}

TEST_F(ChunkStoreTest, GivesTheRecordOfASessionBack) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(10);
  auto session = MakeSession(PromptIds(512, 1, 700), "s");
  session->write.record = "what was sent";
  const Sha256Digest id = session->write.session_id;
  EXPECT_TRUE(absl::IsNotFound(store().SessionRecord(id, deadline).status()));
  (void)Write(*session);
  EXPECT_EQ(store().SessionRecord(id, deadline).value(), "what was sent");
  auto next = MakeSession(PromptIds(512, 1, 900), "s");
  next->write.record = std::string(300'000, 'x');  // of many pages
  (void)Write(*next);
  EXPECT_EQ(store().SessionRecord(id, deadline).value(), next->write.record);
  store().SetAttached(Sha256().Update("another").Finish());
  EXPECT_TRUE(absl::IsNotFound(store().SessionRecord(id, deadline).status()));
}

TEST_F(ChunkStoreTest, ASessionsNextFileReplacesItAndWritesOnlyWhatChanged) {
  const FileKey first = Write(*MakeSession(PromptIds(512, 1, 1300), "s", 1200));
  const auto next = MakeSession(PromptIds(512, 1, 2100), "s", 1200);
  const auto result = store().WriteManifest(next->write);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->chunks_shared, 2u);  // the third was not whole
  EXPECT_FALSE(Has(first));
  EXPECT_EQ(Files(FileKind::kSession), 1u);
  EXPECT_EQ(store().counters().replaced_sessions, 1u);
  for (const std::uint64_t position : {2100, 512, 1024, 2048}) {
    EXPECT_TRUE(ReadBack(store(), *next, result->file_key, position).ok());
  }
  // Other bytes of the same tokens: other chunks.
  const auto changed = MakeSession(PromptIds(512, 1, 2100), "s", 1200, 5);
  const auto again = store().WriteManifest(changed->write);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->chunks_shared, 2u);
  EXPECT_EQ(again->chunks_written, 3u);
  EXPECT_TRUE(ReadBack(store(), *changed, again->file_key, 2100).ok());
}

TEST_F(ChunkStoreTest, EndAnchorsAreFoundByTokensAlone) {
  const auto session = MakeSession(PromptIds(512, 1, 700), "s");
  Write(*session);
  // The conversation's next turn.
  const auto next = MakeSession(PromptIds(512, 1, 900), "other");
  EXPECT_EQ(Deepest(store(), *next)->position, 700u);
  // It parts inside the end anchor's last block.
  auto ids = PromptIds(512, 1, 900);
  ids[650] = 3;
  const auto parted = MakeSession(ids, "s");
  EXPECT_EQ(Deepest(store(), *parted)->position, 512u);
  // It ends before.
  EXPECT_EQ(
      Deepest(store(), *MakeSession(PromptIds(512, 1, 690), "s"))->position,
      512u);
}

TEST_F(ChunkStoreTest, BudgetsHoldAndTheLeastValuableGoes) {
  const FileKey first = Write(*MakeAnchor(PromptIds(0, 1, 1024)));
  const std::uint64_t size = store().Use().disk_bytes;
  StoreLimits limits = store().limits();
  limits.disk_budget_bytes = 3 * size + 40000;
  ASSERT_TRUE(store().SetLimits(limits).ok());
  const FileKey second = Write(*MakeAnchor(PromptIds(0, 2, 1024)));
  store().NoteUse(first);
  for (std::uint64_t seed = 3; seed < 12; ++seed) {
    Write(*MakeAnchor(PromptIds(0, seed, 1024)));
    EXPECT_LE(store().Use().disk_bytes, limits.disk_budget_bytes);
    EXPECT_EQ(world_.Unaccounted(), "");
  }
  EXPECT_TRUE(Has(first));
  EXPECT_FALSE(Has(second));
  EXPECT_GE(store().counters().evicted_anchors, 7u);
  // Larger than the whole budget: nothing goes for it.
  limits.disk_budget_bytes = 2 * size;
  ASSERT_TRUE(store().SetLimits(limits).ok());
  const auto anchors = store().Use().anchors;
  const auto large =
      store().WriteManifest(MakeAnchor(PromptIds(0, 20, 4096))->write);
  EXPECT_EQ(large.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store().Use().anchors, anchors);
  EXPECT_EQ(store().counters().refused_budget, 1u);
  // Limits that were set hold after a restart.
  ASSERT_TRUE(world_.Reboot(0).ok());
  EXPECT_EQ(store().limits().disk_budget_bytes, 2 * size);
}

TEST_F(ChunkStoreTest, PinnedOnesStay) {
  const FileKey first = Write(*MakeAnchor(PromptIds(0, 1, 1024)));
  ASSERT_TRUE(store().SetPinned(first, true).ok());
  EXPECT_FALSE(store().SetPinned(FileKey{}, true).ok());
  StoreLimits limits = store().limits();
  limits.disk_budget_bytes = store().Use().disk_bytes + 1000;
  ASSERT_TRUE(store().SetLimits(limits).ok());
  ASSERT_TRUE(world_.Reboot(0).ok());
  EXPECT_EQ(store()
                .WriteManifest(MakeAnchor(PromptIds(0, 2, 1024))->write)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  world_.clock.Advance(std::chrono::hours(24 * 30));
  ASSERT_TRUE(store().Maintain().ok());
  EXPECT_TRUE(Has(first));
  EXPECT_EQ(store().Use().pinned_manifests, 1u);
  ASSERT_TRUE(store().RebuildIndex().ok());
  EXPECT_TRUE(store().ShowManifest(first)->pinned);
  ASSERT_TRUE(store().SetPinned(first, false).ok());
  // A rebuilt row counts as used when it was rebuilt.
  world_.clock.Advance(std::chrono::hours(24 * 30));
  ASSERT_TRUE(store().Maintain().ok());
  EXPECT_FALSE(Has(first));
}

TEST_F(ChunkStoreTest, UnusedAnchorsExpireAndSessionsDoNot) {
  const FileKey used = Write(*MakeAnchor(PromptIds(0, 1, 512)));
  const FileKey unused = Write(*MakeAnchor(PromptIds(0, 2, 512)));
  const FileKey session = Write(*MakeSession(PromptIds(0, 3, 600), "s"));
  world_.clock.Advance(std::chrono::hours(24 * 4));
  store().NoteUse(used);
  ASSERT_TRUE(store().Maintain().ok());
  // Uses survive a restart; a year of standing still is no time.
  ASSERT_TRUE(world_.Reboot(7).ok());
  world_.Close();
  world_.clock.Advance(std::chrono::hours(24 * 365));
  ASSERT_TRUE(world_.Open().ok());
  ASSERT_TRUE(store().Maintain().ok());
  EXPECT_TRUE(Has(used));
  EXPECT_TRUE(Has(unused));
  EXPECT_EQ(store().ShowManifest(unused)->unused_s, 4 * kDay);
  EXPECT_EQ(store().ShowManifest(used)->hits, 1u);
  world_.clock.Advance(std::chrono::hours(24 * 4));
  ASSERT_TRUE(store().Maintain().ok());
  EXPECT_TRUE(Has(used));
  EXPECT_FALSE(Has(unused));
  EXPECT_TRUE(Has(session));
  EXPECT_EQ(store().counters().expired, 1u);
}

TEST_F(ChunkStoreTest, TwoModelsInTurnKeepBothCaches) {
  const auto ours = MakeAnchor(PromptIds(0, 1, 512));
  const auto theirs = MakeAnchor(PromptIds(0, 1, 512), "another model");
  const FileKey our_key = Write(*ours);
  store().SetAttached(testing::Fingerprint("another model"));
  const FileKey their_key = Write(*theirs);
  EXPECT_NE(our_key, their_key);
  EXPECT_EQ(Deepest(store(), *theirs)->file_key, their_key);
  EXPECT_EQ(store().Use().foreign_manifests, 1u);
  EXPECT_TRUE(ReadBack(store(), *ours, our_key, 512).ok());
  // The wrong fingerprint opens nothing.
  auto mixed = MakeAnchor(PromptIds(0, 1, 512));
  mixed->write.fingerprint = testing::Fingerprint("another model");
  EXPECT_EQ(ReadBack(store(), *mixed, our_key, 512).code(),
            absl::StatusCode::kFailedPrecondition);
  // Foreign files are the first victims, and clear --foreign takes them.
  StoreLimits limits = store().limits();
  limits.disk_budget_bytes = store().Use().disk_bytes - 1;
  store().NoteUse(our_key);
  ASSERT_TRUE(store().SetLimits(limits).ok());
  EXPECT_FALSE(Has(our_key));
  EXPECT_TRUE(Has(their_key));
  EXPECT_EQ(store().Clear(FileKind::kAnchor, true).value(), 0u);
  store().SetAttached(std::nullopt);
  EXPECT_EQ(store().Clear(FileKind::kAnchor, true).value(), 1u);
}

TEST_F(ChunkStoreTest, ForeignSessionsExpire) {
  const FileKey key = Write(*MakeSession(PromptIds(0, 1, 600), "s"));
  store().SetAttached(testing::Fingerprint("another model"));
  world_.clock.Advance(std::chrono::hours(24 * 8));
  ASSERT_TRUE(store().Maintain().ok());
  EXPECT_FALSE(Has(key));
}

TEST_F(ChunkStoreTest, BelowTheFloorItServesAndDoesNotWrite) {
  const auto anchor = MakeAnchor(PromptIds(0, 1, 512));
  const FileKey key = Write(*anchor);
  StoreLimits limits = store().limits();
  limits.free_floor_bytes = 1'000'000;
  ASSERT_TRUE(store().SetLimits(limits).ok());
  world_.fs.set_free_bytes(1'010'000);
  EXPECT_EQ(store()
                .WriteManifest(MakeAnchor(PromptIds(0, 2, 512))->write)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(store().Use().not_writing, HasSubstr("1000000 must stay free"));
  EXPECT_EQ(store().counters().refused_free_space, 1u);
  EXPECT_TRUE(ReadBack(store(), *anchor, key, 512).ok());
  world_.fs.set_free_bytes(100'000'000);
  Write(*MakeAnchor(PromptIds(0, 2, 512)));
  EXPECT_EQ(store().Use().not_writing, "");
}

TEST_F(ChunkStoreTest, ItSaysSoBeforeAnythingIsRefused) {
  StoreLimits limits = store().limits();
  limits.free_floor_bytes = 1'000'000;
  ASSERT_TRUE(store().SetLimits(limits).ok());
  EXPECT_EQ(store().Use().not_writing, "");
  world_.fs.set_free_bytes(999'999);
  EXPECT_THAT(store().Use().not_writing, HasSubstr("1000000 must stay free"));
  world_.fs.set_free_bytes(1'000'000);
  EXPECT_EQ(store().Use().not_writing, "");
  EXPECT_EQ(store().counters().refused_free_space, 0u);
}

TEST_F(ChunkStoreTest, ALostLeasePublishesNothing) {
  auto anchor = MakeAnchor(PromptIds(0, 1, 1536));
  int asked = 0;
  std::vector<std::size_t> read;
  anchor->write.still_leased = [&] { return ++asked < 2; };
  anchor->write.chunk_read = [&](std::size_t i) { read.push_back(i); };
  EXPECT_EQ(store().WriteManifest(anchor->write).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(read, std::vector<std::size_t>{0});
  EXPECT_EQ(store().counters().leases_lost, 1u);
  EXPECT_EQ(world_.fs.TotalBytes(), store().Use().ledger_bytes);
  EXPECT_FALSE(Deepest(store(), *anchor));
}

TEST_F(ChunkStoreTest, ADeadlineCutsASessionAndEndsAnAnchor) {
  auto session = MakeSession(PromptIds(0, 1, 1700), "s");
  const auto start = world_.clock.Now();
  session->write.deadline = start + std::chrono::hours(1);
  session->write.chunk_read = [&](std::size_t i) {
    if (i == 1) world_.clock.Advance(std::chrono::hours(2));
  };
  const auto result = store().WriteManifest(session->write);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->end_position, 1024u);
  EXPECT_EQ(store().counters().sessions_cut, 1u);
  EXPECT_EQ(Deepest(store(), *session)->position, 1024u);
  EXPECT_TRUE(ReadBack(store(), *session, result->file_key, 1024).ok());
  auto anchor = MakeAnchor(PromptIds(0, 2, 1024));
  anchor->write.deadline = world_.clock.Now();
  EXPECT_EQ(store().WriteManifest(anchor->write).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(store().counters().deadlines_missed, 1u);
}

TEST_F(ChunkStoreTest, RowsAreNotNeededForChunksThatAreThere) {
  const auto full = MakeAnchor(PromptIds(512, 1, 1024));
  Write(*full);
  auto partly = MakeAnchor(PromptIds(512, 2, 1024));
  const FileKey head = ChunkFileKey(
      ChainPrefixKey(
          ChainPrefixKey(partly->write.root, std::span(partly->ids).first(256)),
          std::span(partly->ids).subspan(256, 256)),
      Provenance::kGrid, {});
  const FileKey keys[] = {head, FileKey{}};
  EXPECT_THAT(store().HasChunks(keys), ::testing::ElementsAre(true, false));
  partly->write.chunks[0].blocks.clear();
  Write(*partly);
  auto missing = MakeAnchor(PromptIds(0, 3, 1024));
  missing->write.chunks[0].blocks.clear();
  EXPECT_EQ(store().WriteManifest(missing->write).status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(ChunkStoreTest, MalformedWritesAreRefused) {
  const auto refused = [&](std::unique_ptr<OwnedWrite> write) {
    return store().WriteManifest(write->write).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(MakeAnchor(PromptIds(0, 1, 600))));  // not on a line
  auto write = MakeAnchor(PromptIds(0, 1, 512));
  write->write.chunks[0].provenance = Provenance::kSession;
  EXPECT_TRUE(refused(std::move(write)));
  write = MakeAnchor(PromptIds(0, 1, 512));
  write->write.chunks[0].blocks.pop_back();
  EXPECT_TRUE(refused(std::move(write)));
  write = MakeAnchor(PromptIds(0, 1, 512));
  write->write.chunks[0].blocks[0] += 8;
  EXPECT_TRUE(refused(std::move(write)));
  write = MakeAnchor(PromptIds(0, 1, 512));
  write->write.taint = 100;
  EXPECT_TRUE(refused(std::move(write)));
  write = MakeAnchor(PromptIds(0, 1, 512));
  write->write.states[0].bytes = write->write.states[0].bytes.first(4096);
  EXPECT_TRUE(refused(std::move(write)));
  // A grid chunk above the taint.
  write = MakeSession(PromptIds(0, 1, 1100), "s", 300);
  write->write.chunks[0].provenance = Provenance::kGrid;
  EXPECT_TRUE(refused(std::move(write)));
  EXPECT_EQ(world_.fs.TotalBytes(), store().Use().ledger_bytes);
}

TEST_F(ChunkStoreTest, OperatorsSeeAndEvict) {
  Write(*MakeAnchor(PromptIds(512, 1, 1024)));
  world_.clock.Advance(std::chrono::hours(2));
  const FileKey newer = Write(*MakeAnchor(PromptIds(512, 2, 1024)));
  const FileKey session =
      Write(*MakeSession(PromptIds(512, 1, 1300), "chat", 1100));
  EXPECT_EQ(store().ListManifests().size(), 3u);
  EXPECT_EQ(store().ListChunks().size(), 4u);
  const auto info = store().ShowManifest(session);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->session_key, "chat");
  EXPECT_EQ(info->chunks, 3u);
  EXPECT_EQ(info->states, 3u);
  EXPECT_EQ(info->taint, 1100u);
  EXPECT_FALSE(store().ShowManifest(FileKey{}));
  EXPECT_EQ(store().EvictUnusedFor(FileKind::kAnchor, 3600).value(), 1u);
  EXPECT_TRUE(Has(newer));
  EXPECT_EQ(store().EvictBytes(FileKind::kAnchor, 1).value(), 1u);
  EXPECT_FALSE(Has(newer));
  EXPECT_EQ(store().Clear(FileKind::kSession, false).value(), 1u);
  EXPECT_EQ(world_.fs.TotalBytes(), store().Use().ledger_bytes);
  EXPECT_EQ(store().counters().cleared, 2u);
}

TEST_F(ChunkStoreTest, ReadOnlyDisksKeepServing) {
  const auto anchor = MakeAnchor(PromptIds(0, 1, 512));
  const FileKey key = Write(*anchor);
  for (int k = 0; k < 3; ++k) {
    world_.faults.FailFrom(k, EROFS);
    EXPECT_FALSE(
        store().WriteManifest(MakeAnchor(PromptIds(0, 2, 512))->write).ok());
    world_.faults.Clear();
    EXPECT_TRUE(ReadBack(store(), *anchor, key, 512).ok());
  }
  // What could not be unlinked then is later.
  ASSERT_TRUE(store().Maintain().ok());
  EXPECT_EQ(world_.Unaccounted(), "");
}

}  // namespace
}  // namespace holdfast::cachesvc
