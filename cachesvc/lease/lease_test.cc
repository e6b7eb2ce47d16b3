// Stores out of leased blocks.
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cachesvc/device/device_pools.h"
#include "cachesvc/disk/sessions_seen.h"
#include "cachesvc/lease/leased_snapshot.h"
#include "cachesvc/lease/leased_store.h"
#include "cachesvc/store/prompt_keys.h"
#include "cachesvc/store/testing/store_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "shared/arena/memfd_arena.h"

namespace holdfast::cachesvc {
namespace {

using testing::Fingerprint;
using testing::PromptIds;
using testing::Root;
using testing::StoreWorld;

TEST(SessionsSeenTest, TheFirstTimeAlone) {
  SessionsSeen seen;
  const Sha256Digest a = SessionId(Root(Fingerprint("m")), "a");
  EXPECT_TRUE(seen.Add(a));
  EXPECT_FALSE(seen.Add(a));
  EXPECT_TRUE(seen.Add(SessionId(Root(Fingerprint("m")), "b")));
}

// A device whose memory is the arena's: what lies in one lies in the other.
class OwnDevice {
 public:
  explicit OwnDevice(const std::byte* memory)
      : pools_(std::make_unique<Mapper>(memory, copy_status)) {}

  std::shared_ptr<DevicePool> Map(const AnnouncedLayout& layout) {
    DevicePool::Options options;
    options.pool.block_count = layout.block_count;
    options.pool.check_offset = layout.lease_table_offset;
    options.pool.memory.bytes = layout.lease_table_offset + 4096;
    options.pool.memory.exporter_start = StartOfThis();
    options.block_bytes = layout.block_bytes;
    options.piece_blocks = layout.layout.grid_tokens / kBlockTokens;
    options.engine_pid = static_cast<std::uint32_t>(getpid());
    pools_.Begin(1);
    const auto check = pools_.Map(1, options);
    EXPECT_TRUE(check.ok()) << check.status();
    return pools_.Get(1);
  }
  void End() { pools_.Drop(1); }

  absl::Status copy_status;  // of every copy

 private:
  class Mapper final : public DeviceMapper {
   public:
    Mapper(const std::byte* memory, const absl::Status& status)
        : memory_(memory), status_(status) {}
    absl::StatusOr<std::unique_ptr<MappedDeviceMemory>> Map(
        const DeviceMemoryHandle&) override {
      return std::unique_ptr<MappedDeviceMemory>(new Mapped(*this));
    }
    absl::StatusOr<std::unique_ptr<PinnedHostMemory>> Pin(
        std::span<std::byte>) override {
      return std::make_unique<PinnedHostMemory>();
    }

   private:
    class Mapped final : public MappedDeviceMemory {
     public:
      explicit Mapped(const Mapper& mapper) : mapper_(mapper) {}
      absl::Status Copy(std::span<const Part> parts) override {
        for (const Part& part : parts) {
          std::memcpy(part.to.data(), mapper_.memory_ + part.offset,
                      part.to.size());
        }
        return mapper_.status_;
      }

     private:
      const Mapper& mapper_;
    };

    const std::byte* const memory_;
    const absl::Status& status_;
  };

  static std::uint64_t StartOfThis() {
    std::ifstream file("/proc/self/stat");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    std::istringstream fields(text.substr(text.rfind(')') + 1));
    std::string skipped;
    for (int i = 0; i < 19; ++i) fields >> skipped;
    std::uint64_t start = 0;
    fields >> start;
    return start;
  }

  DevicePools pools_;
};

// An engine's pool: blocks whose bytes say which they are, then the table.
class LeasedStoreTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kBlocks = 16;
  LeasedStoreTest() {
    layout_.layout = testing::WorldLayout();
    layout_.block_tokens = kBlockTokens;
    layout_.block_bytes = layout_.layout.BlockBytes();
    layout_.block_count = kBlocks;
    layout_.lease_table_offset = kBlocks * layout_.block_bytes;
    layout_.lease_slots = 4;
    auto arena = MemfdArena::Create("pool", layout_.lease_table_offset + 4096,
                                    ArenaWriters::kCreatorOnly);
    EXPECT_TRUE(arena.ok());
    arena_ = std::make_unique<MemfdArena>(*std::move(arena));
    for (std::uint64_t i = 0; i < layout_.lease_table_offset; ++i) {
      arena_->data()[i] =
          static_cast<std::byte>(i * 7 + i / layout_.block_bytes * 31);
    }
    auto mapped = MappedArena::MapReadOnly(
        "pool", arena_->fd(), arena_->bytes(), ArenaWriters::kCreatorOnly);
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    pool_ = std::make_shared<const MappedArena>(*std::move(mapped));
    device_.emplace(arena_->data());
    SetLease(2, 9);
    EXPECT_TRUE(world_.Open().ok());
  }
  void SetLease(int slot, std::uint64_t generation) {
    std::memcpy(arena_->data() + layout_.lease_table_offset + 8 * slot,
                &generation, sizeof(generation));
  }
  LeasedStore Anchor() {
    const std::uint64_t grid = layout_.layout.grid_tokens;
    const std::uint64_t state_blocks =
        (StateBytes(layout_.layout) + layout_.block_bytes - 1) /
        layout_.block_bytes;
    LeasedStore store;
    store.fingerprint = Fingerprint("model");
    store.layout = layout_;
    store.pool = pool_;
    store.root = Root(store.fingerprint);
    store.key_ids = PromptIds(0, 1, 2 * grid);
    std::uint32_t next = 0;
    for (; next < 2 * grid / kBlockTokens; ++next) {
      store.blocks.push_back((next * 3 + 1) % kBlocks);  // in any order
    }
    LeasedState state{.position = 2 * grid};
    for (std::uint32_t i = 0; i < state_blocks; ++i) state.blocks.push_back(i);
    store.states.push_back(state);
    store.lease_slot = 2;
    store.lease_generation = 9;
    store.deadline = Deadline::max();
    return store;
  }

  // The anchor's rows in a device's memory, the states where they were.
  LeasedStore OnDevice() {
    LeasedStore store = Anchor();
    store.device = device_->Map(layout_);
    store.layout.device_block_count = kBlocks;
    for (std::uint32_t& block : store.blocks) block += kBlocks;
    return store;
  }

  AnnouncedLayout layout_;
  std::unique_ptr<MemfdArena> arena_;
  std::shared_ptr<const MappedArena> pool_;
  std::optional<OwnDevice> device_;  // whose memory is the arena's
  StoreWorld world_;
};

TEST_F(LeasedStoreTest, WhatWasLentIsWhatIsRead) {
  const auto leased = LeasedWrite::Make(Anchor());
  ASSERT_TRUE(leased.ok()) << leased.status();
  const auto written = world_.store->WriteManifest((*leased)->write());
  ASSERT_TRUE(written.ok()) << written.status();
  testing::OwnedWrite expected;
  expected.layout = layout_.layout;
  expected.ids = Anchor().key_ids;
  expected.write = (*leased)->write();
  EXPECT_TRUE(testing::ReadBack(*world_.store, expected, written->file_key,
                                2 * layout_.layout.grid_tokens)
                  .ok());
}

TEST_F(LeasedStoreTest, ALeaseTakenBackPublishesNothing) {
  auto leased = LeasedWrite::Make(Anchor());
  ASSERT_TRUE(leased.ok());
  // While the second chunk is read.
  int chunks = 0;
  (*leased)->write().chunk_read = [&](std::size_t) {
    if (++chunks == 1) SetLease(2, 0);
  };
  const auto written = world_.store->WriteManifest((*leased)->write());
  EXPECT_EQ(written.status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(world_.store->counters().leases_lost, 1u);
  EXPECT_TRUE(world_.store->ListManifests().empty());
  EXPECT_TRUE(world_.store->ListChunks().empty());
  // Another lease has the slot now.
  SetLease(2, 10);
  EXPECT_EQ(LeasedWrite::Make(Anchor()).status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(LeasedStoreTest, RowsOfADeviceAreCopiedWhenTheyAreWritten) {
  for (const FileKind kind : {FileKind::kAnchor, FileKind::kSession}) {
    LeasedStore store = OnDevice();
    store.kind = kind;
    // Session rows are named by their sums: they are read for that too.
    if (kind == FileKind::kSession) {
      store.session_key = "a";
      store.taint = 7;
      store.states[0].kind = StateKind::kEnd;
    }
    const auto leased = LeasedWrite::Make(store);
    ASSERT_TRUE(leased.ok()) << leased.status();
    const auto written = world_.store->WriteManifest((*leased)->write());
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(written->chunks_written, 2u);
    // What would have been written out of the memfd.
    LeasedStore here = store;
    here.blocks = Anchor().blocks;
    const auto mapped = LeasedWrite::Make(here);
    ASSERT_TRUE(mapped.ok());
    testing::OwnedWrite expected;
    expected.layout = layout_.layout;
    expected.ids = here.key_ids;
    expected.write = (*mapped)->write();
    EXPECT_TRUE(testing::ReadBack(*world_.store, expected, written->file_key,
                                  2 * layout_.layout.grid_tokens)
                    .ok());
  }
}

TEST_F(LeasedStoreTest, RowsOfADeviceThatGoesPublishNothing) {
  const auto leased = LeasedWrite::Make(OnDevice());
  ASSERT_TRUE(leased.ok());
  (*leased)->write().chunk_read = [&](std::size_t) { device_->End(); };
  EXPECT_TRUE(absl::IsAborted(
      world_.store->WriteManifest((*leased)->write()).status()));
  EXPECT_EQ(world_.store->counters().leases_lost, 1u);
  EXPECT_TRUE(world_.store->ListManifests().empty());
  EXPECT_TRUE(world_.store->ListChunks().empty());
  StateStore store({});
  LeasedStore late = OnDevice();
  device_->End();
  EXPECT_TRUE(absl::IsAborted(StoreSnapshot(store, late).status()));
  // And of one that fails.
  const auto fails = LeasedWrite::Make(OnDevice());
  ASSERT_TRUE(fails.ok());
  device_->copy_status = absl::UnavailableError("illegal address");
  EXPECT_TRUE(absl::IsUnavailable(
      world_.store->WriteManifest((*fails)->write()).status()));
  EXPECT_TRUE(world_.store->ListChunks().empty());
}

TEST_F(LeasedStoreTest, ASnapshotOfADeviceIsOneOfTheMemfd) {
  const auto kept = [this](const LeasedStore& leased) {
    StateStore store({});
    EXPECT_TRUE(StoreSnapshot(store, leased).ok());
    const PromptKeys keys(leased.root, leased.key_ids);
    const auto found = store.Lookup({.fingerprint = leased.fingerprint,
                                     .root = leased.root,
                                     .block_keys = keys.block_keys()});
    EXPECT_EQ(found.size(), 1u);
    const auto snapshot =
        store.Take(found.at(0).entry, found[0].position, leased.key_ids);
    std::vector<std::byte> bytes;
    for (const auto& block : snapshot->blocks) {
      bytes.insert(bytes.end(), block.span().begin(), block.span().end());
    }
    return bytes;
  };
  const auto here = kept(Anchor());
  EXPECT_EQ(here.size(), Anchor().blocks.size() * layout_.block_bytes);
  EXPECT_EQ(kept(OnDevice()), here);
}

// Rows from the taint on, and states above it, are the conversation's.
TEST_F(LeasedStoreTest, ATaintParts) {
  const std::uint64_t grid = layout_.layout.grid_tokens;
  LeasedStore session = Anchor();
  session.kind = FileKind::kSession;
  session.session_key = "a";
  session.taint = grid + 7;
  LeasedState line = session.states[0];
  line.position = grid;
  session.states.insert(session.states.begin(), line);
  session.states[1].kind = StateKind::kEnd;
  const auto leased = LeasedWrite::Make(session);
  ASSERT_TRUE(leased.ok()) << leased.status();
  const ManifestWrite& write = (*leased)->write();
  EXPECT_EQ(write.taint, grid + 7);
  ASSERT_EQ(write.chunks.size(), 2u);
  EXPECT_EQ(write.chunks[0].provenance, Provenance::kGrid);
  EXPECT_EQ(write.chunks[1].provenance, Provenance::kSession);
  EXPECT_EQ(write.states[0].provenance, Provenance::kGrid);
  EXPECT_EQ(write.states[1].provenance, Provenance::kSession);
  ASSERT_TRUE(world_.store->WriteManifest(write).ok());
  // The same rows from another launch are another file.
  LeasedStore clean = Anchor();
  const auto anchor = LeasedWrite::Make(clean);
  ASSERT_TRUE(anchor.ok());
  const auto written = world_.store->WriteManifest((*anchor)->write());
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->chunks_shared, 1u);
  EXPECT_EQ(written->chunks_written, 1u);
  // And an anchor with a taint is none.
  clean.taint = grid;
  const auto tainted = LeasedWrite::Make(clean);
  ASSERT_TRUE(tainted.ok());
  EXPECT_EQ(world_.store->WriteManifest((*tainted)->write()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(LeasedStoreTest, ATaintGoesWithASnapshot) {
  const std::uint64_t grid = layout_.layout.grid_tokens;
  StateStore store({});
  LeasedStore session = Anchor();
  session.kind = FileKind::kSession;
  session.session_key = "a";
  session.taint = grid + 7;
  session.states[0].kind = StateKind::kEnd;
  ASSERT_TRUE(StoreSnapshot(store, session).ok());
  const PromptKeys keys(session.root, session.key_ids);
  const auto found = store.Lookup({.fingerprint = session.fingerprint,
                                   .root = session.root,
                                   .block_keys = keys.block_keys()});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].taint, grid + 7);
  EXPECT_EQ(found[0].provenance, Provenance::kSession);
  // A prefix entry holds grid rows only.
  LeasedStore prefix = Anchor();
  prefix.taint = grid + 7;
  EXPECT_EQ(StoreSnapshot(store, prefix).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(LeasedStoreTest, WhatDoesNotFitIsRefused) {
  const auto refused = [](LeasedStore store) {
    const auto made = LeasedWrite::Make(std::move(store));
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument)
        << made.status();
  };
  LeasedStore store = Anchor();
  store.blocks[0] = kBlocks;
  refused(store);
  store = Anchor();
  store.blocks.pop_back();
  refused(store);
  store = OnDevice();
  store.blocks[0] = 2 * kBlocks;
  refused(store);
  store = OnDevice();
  store.blocks[1] -= kBlocks;  // in two memories
  refused(store);
  store = OnDevice();
  store.states[0].blocks[0] = kBlocks;  // states are in the memfd
  refused(store);
  store = OnDevice();
  store.device = nullptr;  // not mapped
  refused(store);
  store = Anchor();
  store.states[0].blocks[0] = kBlocks;
  refused(store);
  store = Anchor();
  store.states[0].blocks.push_back(0);
  refused(store);
  store = Anchor();
  store.lease_slot = 4;
  refused(store);
  store = Anchor();
  store.lease_generation = 0;
  refused(store);
}

TEST(SessionIdTest, KeysOfTwoSaltsAreTwo) {
  EXPECT_NE(SessionId(Root(Fingerprint("a")), "k"),
            SessionId(Root(Fingerprint("b")), "k"));
  EXPECT_NE(SessionId(Root(Fingerprint("a")), "k"),
            SessionId(Root(Fingerprint("a")), "l"));
}

}  // namespace
}  // namespace holdfast::cachesvc
