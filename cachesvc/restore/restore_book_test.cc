// Slots and restores: every byte arrives where it belongs, and no slot is used
// twice or lost, whatever the engine and the disk do.
#include "cachesvc/restore/restore_book.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "cachesvc/restore/file_source.h"
#include "cachesvc/restore/snapshot_source.h"
#include "cachesvc/store/testing/store_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "shared/aligned_buffer.h"

namespace holdfast::cachesvc {
namespace {

using testing::MakeAnchor;
using testing::MakeSession;
using testing::OwnedWrite;
using testing::PromptIds;
using testing::StoreWorld;

Deadline Soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(20);
}

TEST(StagingSlotsTest, ASlotIsFreeWhenNobodyHoldsIt) {
  AlignedBuffer memory(4 * 8192);
  StagingSlots slots(memory.span(), 4);
  std::vector<StagingSlots::SlotRef> taken;
  for (int i = 0; i < 4; ++i) taken.push_back(slots.TryTake());
  EXPECT_EQ(slots.TryTake(), nullptr);
  EXPECT_EQ(slots.used(), 4u);
  // A read of the disk holds it too.
  const StagingSlots::SlotRef reading = taken[2];
  EXPECT_EQ(reading->generation, 1u);
  taken[2].reset();
  EXPECT_EQ(slots.TryTake(), nullptr);
  const std::uint32_t index = taken[1]->index;
  taken[1].reset();
  const auto again = slots.TryTake();
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->index, index);
  EXPECT_EQ(again->generation, 2u);
  EXPECT_EQ(again->memory.data(), memory.data() + index * 8192);
}

class RestoreBookTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kSlots = 4;
  RestoreBookTest() {
    EXPECT_TRUE(world_.Open().ok());
    book_ = std::make_unique<RestoreBook>(slots_);
  }

  FileKey Write(const OwnedWrite& write) {
    const auto result = world_.store->WriteManifest(write.write);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->file_key : FileKey{};
  }
  // A restore of one of its states.
  struct Start {
    const OwnedWrite& write;
    FileKey key;
    std::uint64_t position;
    std::uint64_t have = 0;
  };
  absl::StatusOr<std::uint64_t> Begin(const Start& start,
                                      std::span<const KeyId> ids = {}) {
    auto source = FileSource::Open(
        *world_.store,
        {.fingerprint = start.write.write.fingerprint,
         .manifest = start.key,
         .position = start.position,
         .key_ids =
             ids.empty() ? std::span<const KeyId>(start.write.ids) : ids},
        Soon());
    if (!source.ok()) return source.status();
    return book_->Begin(*std::move(source), Next(start.position, start.have));
  }
  RestoreStart Next(std::uint64_t position, std::uint64_t have = 0) {
    return {.id = ++id_,
            .position = position,
            .have_rows = have,
            .deadline = Soon(),
            .on_done = [this] { ++done_; }};
  }
  // What the engine would have: rows from 0 and the state image. Rows below
  // `have` stay as they are.
  struct Got {
    std::vector<std::byte> rows;
    std::vector<std::byte> state;
  };
  absl::StatusOr<Got> ReadAll(const Start& start) {
    const auto bytes = Begin(start);
    if (!bytes.ok()) return bytes.status();
    return Collect(start.position, start.write.layout, *bytes);
  }
  // Of the restore that was begun last.
  absl::StatusOr<Got> Collect(std::uint64_t position, const CacheLayout& layout,
                              std::uint64_t bytes) {
    Got got;
    got.rows.resize((position + kBlockTokens - 1) / kBlockTokens *
                    layout.BlockBytes());
    got.state.resize(StateBytes(layout));
    std::uint64_t sum = 0;
    std::vector<ReturnedSlot> returned;
    for (bool last = false; !last;) {
      const auto handed = book_->Next(id_, returned);
      if (!handed.ok()) return handed.status();
      returned.clear();
      for (const HandedPiece& piece : handed->pieces) {
        auto& to =
            piece.what == SourcePiece::What::kState ? got.state : got.rows;
        EXPECT_LE(piece.target_offset + piece.bytes, to.size());
        std::memcpy(to.data() + piece.target_offset,
                    memory_.data() + piece.slot * slots_.slot_bytes() +
                        piece.slot_offset,
                    piece.bytes);
        sum += piece.bytes;
        returned.push_back({piece.slot, piece.generation});
      }
      last = handed->last;
    }
    EXPECT_EQ(sum, bytes);
    book_->End(std::vector<std::uint64_t>{id_});
    return got;
  }
  void ExpectRows(const OwnedWrite& write, const Got& got, std::uint64_t first,
                  std::uint64_t end) {
    const std::uint64_t block_bytes = write.layout.BlockBytes();
    std::uint64_t block = 0;
    for (const ChunkWrite& chunk : write.write.chunks) {
      for (const std::byte* rows : chunk.blocks) {
        if (block * kBlockTokens >= first && block * kBlockTokens < end) {
          EXPECT_EQ(std::memcmp(got.rows.data() + block * block_bytes, rows,
                                block_bytes),
                    0)
              << "block " << block;
        }
        ++block;
      }
    }
  }

  StoreWorld world_;
  // Pieces are 2 MiB at most.
  AlignedBuffer memory_{kSlots * kIoBytes};
  StagingSlots slots_{memory_.span(), kSlots};
  std::unique_ptr<RestoreBook> book_;
  std::uint64_t id_ = 0;
  int done_ = 0;
};

TEST_F(RestoreBookTest, EveryByteArrives) {
  const auto anchor = MakeAnchor(PromptIds(4096, 1, 4096));
  const auto got = ReadAll({*anchor, Write(*anchor), 4096});
  ASSERT_TRUE(got.ok()) << got.status();
  ExpectRows(*anchor, *got, 0, 4096);
  EXPECT_TRUE(std::ranges::equal(got->state, anchor->write.states[0].bytes));
  EXPECT_EQ(done_, 1);
  EXPECT_EQ(slots_.used(), 0u);
  EXPECT_EQ(book_->live(), 0u);
}

TEST_F(RestoreBookTest, AStateInsideASessionComesAlone) {
  const auto session = MakeSession(PromptIds(1024, 1, 1300), "s");
  const FileKey key = Write(*session);
  for (const StateWrite& state : session->write.states) {
    const auto got = ReadAll({*session, key, state.position});
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectRows(*session, *got, 0, state.position);
    EXPECT_TRUE(std::ranges::equal(got->state, state.bytes));
  }
}

TEST_F(RestoreBookTest, RowsThatTheEngineHasAreNotRead) {
  const auto anchor = MakeAnchor(PromptIds(4096, 1, 4096));
  const FileKey key = Write(*anchor);
  const auto all = Begin({*anchor, key, 4096});
  const auto some = Begin({*anchor, key, 4096, 2048});
  ASSERT_TRUE(all.ok() && some.ok());
  const std::uint64_t had = 2048 / kBlockTokens * anchor->layout.BlockBytes();
  EXPECT_EQ(*all - *some, had);
  book_->Clear();
  const auto got = ReadAll({*anchor, key, 4096, 2048});
  ASSERT_TRUE(got.ok());
  ExpectRows(*anchor, *got, 2048, 4096);
  EXPECT_EQ(std::ranges::count(std::span(got->rows).first(had), std::byte{0}),
            static_cast<std::ptrdiff_t>(had));
}

TEST_F(RestoreBookTest, ASnapshotComesThroughTheSameSlots) {
  const auto session = MakeSession(PromptIds(1024, 1, 1300), "s");
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->spec.layout = session->layout;
  for (const ChunkWrite& chunk : session->write.chunks) {
    for (const std::byte* rows : chunk.blocks) {
      std::memcpy(
          snapshot->blocks.emplace_back(session->layout.BlockBytes()).data(),
          rows, session->layout.BlockBytes());
    }
  }
  for (const StateWrite& state : session->write.states) {
    snapshot->spec.states.push_back({state.position});
    std::ranges::copy(state.bytes,
                      snapshot->states.emplace_back(state.bytes.size()).data());
  }
  EXPECT_EQ(SnapshotSource::Make(snapshot, 7).status().code(),
            absl::StatusCode::kNotFound);
  for (const StateWrite& state : session->write.states) {
    auto source = SnapshotSource::Make(snapshot, state.position);
    ASSERT_TRUE(source.ok());
    const auto bytes = book_->Begin(*std::move(source), Next(state.position));
    ASSERT_TRUE(bytes.ok());
    const auto got = Collect(state.position, session->layout, *bytes);
    ASSERT_TRUE(got.ok());
    ExpectRows(*session, *got, 0, state.position);
    EXPECT_TRUE(std::ranges::equal(got->state, state.bytes));
  }
}

TEST_F(RestoreBookTest, SlotsComeBackByEndAndByClearAlone) {
  const auto anchor = MakeAnchor(PromptIds(8192, 1, 8192));
  ASSERT_TRUE(Begin({*anchor, Write(*anchor), 8192}).ok());
  const auto handed = book_->Next(id_, {});
  ASSERT_TRUE(handed.ok());
  ASSERT_FALSE(handed->pieces.empty());
  const HandedPiece& piece = handed->pieces[0];
  EXPECT_GT(slots_.used(), 0u);
  // Another generation, and a slot that was never lent.
  const std::vector<ReturnedSlot> wrong = {{piece.slot, piece.generation + 1},
                                           {piece.slot + 1000, 1}};
  ASSERT_TRUE(book_->Next(id_, wrong).ok());
  EXPECT_EQ(book_->stale_returns(), 2u);
  book_->End(std::vector<std::uint64_t>{id_, 12345});
  // Reads under way hold theirs until they end.
  std::vector<StagingSlots::SlotRef> all;
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    all.push_back(slots_.Take(Soon()));
    EXPECT_NE(all.back(), nullptr);
  }
  EXPECT_EQ(book_->Next(id_, {}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RestoreBookTest, RestoresAreBoundedAndNamedOnce) {
  const auto anchor = MakeAnchor(PromptIds(512, 1, 512));
  const FileKey key = Write(*anchor);
  ASSERT_TRUE(Begin({*anchor, key, 512}).ok());
  --id_;
  EXPECT_EQ(Begin({*anchor, key, 512}).status().code(),
            absl::StatusCode::kAlreadyExists);
  while (book_->live() < RestoreBook::kMostRestores) {
    ASSERT_TRUE(Begin({*anchor, key, 512}).ok());
  }
  EXPECT_EQ(Begin({*anchor, key, 512}).status().code(),
            absl::StatusCode::kResourceExhausted);
  book_->Clear();
  EXPECT_EQ(book_->live(), 0u);
}

TEST_F(RestoreBookTest, OneThatEndedBeforeItBeganDoesNotBegin) {
  const auto anchor = MakeAnchor(PromptIds(512, 1, 512));
  const FileKey key = Write(*anchor);
  for (int i = 0; i < 20; ++i) {
    book_->End(std::vector<std::uint64_t>{id_ + 1});
    EXPECT_EQ(Begin({*anchor, key, 512}).status().code(),
              absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(book_->live(), 0u);
  // Another attach's ids are others.
  book_->End(std::vector<std::uint64_t>{id_ + 1});
  book_->Clear();
  EXPECT_TRUE(Begin({*anchor, key, 512}).ok());
}

TEST_F(RestoreBookTest, OneOfAnAttachThatHasEndedDoesNotBegin) {
  const auto anchor = MakeAnchor(PromptIds(512, 1, 512));
  const FileKey key = Write(*anchor);
  book_->Clear(/*attach=*/7);
  EXPECT_EQ(Begin({*anchor, key, 512}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(book_->live(), 0u);
}

// But for those whose slots the engine may still copy out of.
TEST_F(RestoreBookTest, ForgottenOnesGoAtTheirDeadline) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->spec.layout = testing::WorldLayout();
  for (int i = 0; i < 2; ++i) {
    snapshot->blocks.emplace_back(snapshot->spec.layout.BlockBytes());
  }
  snapshot->spec.states.push_back({512});
  snapshot->states.emplace_back(StateBytes(snapshot->spec.layout));
  const auto begin = [&](Deadline deadline) {
    auto source = SnapshotSource::Make(snapshot, 512);
    EXPECT_TRUE(source.ok());
    RestoreStart start = Next(512);
    start.deadline = deadline;
    return book_->Begin(*std::move(source), start).status();
  };
  ASSERT_TRUE(begin(Deadline::min()).ok());
  const auto handed = book_->Next(id_, {});
  ASSERT_TRUE(handed.ok()) << handed.status();
  ASSERT_FALSE(handed->pieces.empty());
  ASSERT_TRUE(begin(Soon()).ok());
  for (std::size_t i = 0; i < 2 * RestoreBook::kMostRestores; ++i) {
    ASSERT_TRUE(begin(Deadline::min()).ok());
    EXPECT_EQ(book_->live(), 3u);
  }
}

// The engine tells of an end when it next has something to say.
TEST_F(RestoreBookTest, WhatItReadsIsLetGoWithTheLastPiece) {
  const auto anchor = MakeAnchor(PromptIds(512, 1, 1024));
  const FileKey key = Write(*anchor);
  ASSERT_TRUE(Begin({*anchor, key, 1024}).ok());
  for (bool last = false; !last;) {
    const auto handed = book_->Next(id_, {});
    ASSERT_TRUE(handed.ok()) << handed.status();
    last = handed->last;
  }
  EXPECT_EQ(book_->live(), 1u);
  ASSERT_TRUE(world_.store->Evict(std::span(&key, 1)).ok());
  EXPECT_EQ(world_.store->Use().held_bytes, 0u);
  // It may still give slots back.
  const auto more = book_->Next(id_, {});
  ASSERT_TRUE(more.ok());
  EXPECT_TRUE(more->last);
  EXPECT_TRUE(more->pieces.empty());
}

TEST_F(RestoreBookTest, AndWithTheFirstError) {
  const auto anchor = MakeAnchor(PromptIds(512, 1, 1024));
  const FileKey key = Write(*anchor);
  ASSERT_TRUE(Begin({*anchor, key, 1024}).ok());
  world_.faults.FailCalls("read ", EIO);
  EXPECT_FALSE(book_->Next(id_, {}).ok());
  world_.faults.Clear();
  EXPECT_EQ(book_->Next(id_, {}).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(world_.store->Evict(std::span(&key, 1)).ok());
  // Reads under way hold their file until they end.
  const Deadline deadline = Soon();
  while (world_.store->Use().held_bytes != 0 &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(world_.store->Use().held_bytes, 0u);
}

TEST_F(RestoreBookTest, OneLeavesSlotsForAnother) {
  const auto anchor = MakeAnchor(PromptIds(8192, 1, 8192));
  const FileKey key = Write(*anchor);
  ASSERT_TRUE(Begin({*anchor, key, 8192}).ok());
  const std::uint64_t first = id_;
  ASSERT_TRUE(book_->Next(first, {}).ok());
  EXPECT_EQ(slots_.used(), kSlots - 1);
  auto source = FileSource::Open(*world_.store,
                                 {.fingerprint = anchor->write.fingerprint,
                                  .manifest = key,
                                  .position = 8192,
                                  .key_ids = anchor->ids},
                                 Soon());
  ASSERT_TRUE(source.ok());
  ASSERT_TRUE(book_->Begin(*std::move(source), Next(8192)).ok());
  // The first one gives none back.
  const auto handed = book_->Next(id_, {});
  ASSERT_TRUE(handed.ok()) << handed.status();
  EXPECT_FALSE(handed->pieces.empty());
  EXPECT_EQ(slots_.used(), kSlots);
}

TEST_F(RestoreBookTest, OtherIdsAndDamageHandNothingOver) {
  const auto anchor = MakeAnchor(PromptIds(1024, 1, 1024));
  const FileKey key = Write(*anchor);
  auto ids = anchor->ids;
  ids[1000] += 1;
  EXPECT_EQ(Begin({*anchor, key, 1024}, ids).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const std::string path = "/cache/anchors/" + ToHex(key) + ".anchor";
  world_.fs.FlipBit(path, 8 * (world_.fs.Content(path).size() - 100));
  EXPECT_EQ(ReadAll({*anchor, key, 1024}).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(done_, 0);
  book_->Clear();
}

}  // namespace
}  // namespace holdfast::cachesvc
