#include "cachesvc/statestore/state_store.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/store/prompt_keys.h"
#include "gtest/gtest.h"

namespace holdfast::cachesvc {
namespace {

CacheLayout Layout() {
  CacheLayout layout;
  layout.views = {{"K", 16, 1}};
  layout.sections = {{"h_last", 10}, {"S", 20}};
  layout.grid_tokens = 512;
  return layout;
}

// Of a snapshot of `blocks` blocks and one state: 4,096 a block, 8,192 a state,
// 8 an id.
std::uint64_t Bytes(std::uint64_t blocks) {
  return 4096 * blocks + 8192 + 8 * 256 * blocks;
}

std::vector<KeyId> Ids(std::uint64_t seed, std::uint64_t tokens) {
  std::vector<KeyId> ids;
  for (std::uint64_t i = 0; i < tokens; ++i) ids.push_back(1000 * seed + i);
  return ids;
}

class StateStoreTest : public ::testing::Test {
 protected:
  StateStoreTest() : store_({5 * Bytes(2), 3 * Bytes(2)}) {}

  static SnapshotSpec Spec(EntryKind kind, std::vector<KeyId> ids,
                           const std::string& session = "s") {
    SnapshotSpec spec;
    spec.kind = kind;
    spec.fingerprint = Sha256().Update("model").Finish();
    spec.layout = Layout();
    spec.root = RootPrefixKey(spec.fingerprint, "");
    spec.states = {
        {ids.size(),
         kind == EntryKind::kSession ? StateKind::kEnd : StateKind::kLine,
         Provenance::kGrid}};
    spec.key_ids = std::move(ids);
    spec.session_id = Sha256().Update(session).Finish();
    spec.session_key = session;
    return spec;
  }
  void Put(SnapshotSpec spec, int fill = 1) {
    auto filling = store_.Begin(std::move(spec));
    ASSERT_TRUE(filling.ok()) << filling.status();
    for (std::size_t i = 0; i < (*filling)->blocks(); ++i) {
      std::memset((*filling)->block(i).data(), fill, 4096);
    }
    std::memset((*filling)->state(0).data(), fill + 1, 8192);
    (*filling)->Commit();
  }
  std::vector<StoreCandidate> Lookup(const std::vector<KeyId>& ids) {
    const auto fingerprint = Sha256().Update("model").Finish();
    const PrefixKey root = RootPrefixKey(fingerprint, "");
    const PromptKeys keys(root, ids);
    return store_.Lookup({fingerprint, root, keys.block_keys(), 64});
  }

  StateStore store_;
};

TEST_F(StateStoreTest, GivesBackWhatWasPut) {
  Put(Spec(EntryKind::kSession, Ids(1, 600)), 7);
  const auto found = Lookup(Ids(1, 900));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].position, 600u);
  EXPECT_EQ(found[0].tail.size(), 88u);
  EXPECT_EQ(found[0].state, StateKind::kEnd);
  const auto snapshot = store_.Take(found[0].entry, 600, Ids(1, 900));
  ASSERT_NE(snapshot, nullptr);
  EXPECT_EQ(snapshot->blocks.size(), 3u);
  EXPECT_EQ(snapshot->blocks[2].data()[5], std::byte{7});
  EXPECT_EQ(snapshot->states[0].data()[5], std::byte{8});
  EXPECT_EQ(store_.stats().hits, 1u);
}

TEST_F(StateStoreTest, EveryKeyIdIsCompared) {
  Put(Spec(EntryKind::kSession, Ids(1, 600)));
  const auto found = Lookup(Ids(1, 600));
  ASSERT_EQ(found.size(), 1u);
  for (const std::size_t at : {0, 255, 599}) {
    auto ids = Ids(1, 600);
    ids[at] = 5;
    EXPECT_EQ(store_.Take(found[0].entry, 600, ids), nullptr);
  }
  EXPECT_EQ(store_.Take(found[0].entry, 600, Ids(1, 599)), nullptr);
  EXPECT_EQ(store_.Take(found[0].entry + 1, 600, Ids(1, 600)), nullptr);
  EXPECT_EQ(store_.stats().mismatches, 4u);
  EXPECT_EQ(store_.stats().hits, 0u);
}

TEST_F(StateStoreTest, ANewTurnReplacesTheOlder) {
  Put(Spec(EntryKind::kSession, Ids(1, 300)));
  Put(Spec(EntryKind::kSession, Ids(1, 500)));
  Put(Spec(EntryKind::kSession, Ids(2, 300), "other"));
  Put(Spec(EntryKind::kPrefix, Ids(1, 512)));
  Put(Spec(EntryKind::kPrefix, Ids(1, 512)));
  EXPECT_EQ(store_.stats().sessions, 2u);
  EXPECT_EQ(store_.stats().prefixes, 1u);
  EXPECT_EQ(store_.stats().replaced, 2u);
  EXPECT_EQ(Lookup(Ids(1, 600)).size(), 2u);
}

TEST_F(StateStoreTest, TheNewestRecordOfASession) {
  const auto id = [](const char* session) {
    return Sha256().Update(session).Finish();
  };
  EXPECT_FALSE(store_.SessionRecord(id("s")).has_value());
  SnapshotSpec first = Spec(EntryKind::kSession, Ids(1, 300));
  first.record = "first";
  Put(first);
  EXPECT_EQ(store_.SessionRecord(id("s")), "first");
  SnapshotSpec second = Spec(EntryKind::kSession, Ids(1, 500));
  second.record = "second";
  Put(second);
  Put(Spec(EntryKind::kSession, Ids(2, 300), "other"));
  EXPECT_EQ(store_.SessionRecord(id("s")), "second");
  EXPECT_EQ(store_.SessionRecord(id("other")), "");
}

TEST_F(StateStoreTest, ARecordThatComesLaterOrEarlier) {
  SnapshotSpec spec = Spec(EntryKind::kSession, Ids(1, 512), "a");
  spec.record = "old";
  const Sha256Digest a = spec.session_id;
  Put(spec);
  const std::uint64_t before = store_.stats().session_bytes;
  store_.PutRecord({a, Ids(1, 511), "of other rows"});
  store_.PutRecord({Sha256().Update("b").Finish(), Ids(1, 512), "of another"});
  EXPECT_EQ(store_.SessionRecord(a), "old");
  store_.PutRecord({a, Ids(1, 512), "newer"});
  EXPECT_EQ(store_.SessionRecord(a), "newer");
  EXPECT_EQ(store_.stats().session_bytes, before + 2);
  // Before its entry.
  store_.PutRecord({a, Ids(2, 512), "newest"});
  EXPECT_EQ(store_.SessionRecord(a), "newer");
  spec.key_ids = Ids(2, 512);
  Put(spec);
  EXPECT_EQ(store_.SessionRecord(a), "newest");
  EXPECT_EQ(store_.stats().session_bytes, before + 3);
  EXPECT_EQ(store_.Clear(), 1u);
  EXPECT_EQ(store_.stats().session_bytes, 0u);
}

TEST_F(StateStoreTest, RecordsWithoutEntriesAreBounded) {
  const Sha256Digest first = Sha256().Update("0").Finish();
  store_.PutRecord({first, Ids(1, 512), "first"});
  for (int i = 1; i <= 16; ++i) {
    store_.PutRecord(
        {Sha256().Update(std::to_string(i)).Finish(), Ids(1, 512), "r"});
  }
  SnapshotSpec spec = Spec(EntryKind::kSession, Ids(1, 512), "0");
  Put(spec);
  EXPECT_EQ(store_.SessionRecord(first), "");
  spec = Spec(EntryKind::kSession, Ids(1, 512), "16");
  const Sha256Digest last = spec.session_id;
  Put(spec);
  EXPECT_EQ(store_.SessionRecord(last), "r");
}

TEST_F(StateStoreTest, RoomIsMadeBeforeTheCopyAndLruGoes) {
  for (std::uint64_t i = 1; i <= 5; ++i) {
    Put(Spec(EntryKind::kSession, Ids(i, 512), std::to_string(i)));
  }
  const auto first = Lookup(Ids(1, 512));
  ASSERT_NE(store_.Take(first[0].entry, 512, Ids(1, 512)), nullptr);
  auto filling = store_.Begin(Spec(EntryKind::kSession, Ids(6, 512), "6"));
  ASSERT_TRUE(filling.ok());
  // The room is there now; the entry is not.
  EXPECT_EQ(store_.stats().sessions, 4u);
  EXPECT_EQ(store_.stats().filling_bytes, Bytes(2));
  EXPECT_TRUE(Lookup(Ids(6, 512)).empty());
  EXPECT_FALSE(Lookup(Ids(1, 512)).empty());
  EXPECT_TRUE(Lookup(Ids(2, 512)).empty());
  filling->reset();
  EXPECT_EQ(store_.stats().filling_bytes, 0u);
  EXPECT_EQ(store_.stats().evicted_sessions, 1u);
}

TEST_F(StateStoreTest, TheLargerClassGivesFirst) {
  for (std::uint64_t i = 1; i <= 4; ++i) {
    Put(Spec(EntryKind::kPrefix, Ids(i, 512)));
  }
  Put(Spec(EntryKind::kSession, Ids(5, 512), "a"));
  Put(Spec(EntryKind::kSession, Ids(6, 512), "b"));
  EXPECT_EQ(store_.stats().evicted_prefixes, 1u);
  EXPECT_TRUE(Lookup(Ids(1, 512)).empty());
  EXPECT_EQ(store_.stats().prefixes, 3u);
  EXPECT_EQ(store_.stats().sessions, 2u);
}

TEST_F(StateStoreTest, CapsHold) {
  EXPECT_EQ(
      store_.Begin(Spec(EntryKind::kSession, Ids(1, 256 * 9))).status().code(),
      absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store_.stats().refused_too_large, 1u);
  // Three of these may be filled at once, not four: nobody waits.
  std::vector<std::unique_ptr<StateStore::Filling>> fillings;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    auto filling =
        store_.Begin(Spec(EntryKind::kSession, Ids(i, 512), std::to_string(i)));
    ASSERT_TRUE(filling.ok());
    fillings.push_back(*std::move(filling));
  }
  EXPECT_FALSE(store_.Begin(Spec(EntryKind::kSession, Ids(6, 512), "6")).ok());
  EXPECT_EQ(store_.LongestLine(Layout(), 100'000), 2048u);
  EXPECT_EQ(store_.LongestLine(Layout(), 1100), 1024u);
  EXPECT_EQ(store_.LongestLine(Layout(), 500), 0u);
}

TEST_F(StateStoreTest, PrefixEntriesHoldGridRowsOnly) {
  SnapshotSpec tainted = Spec(EntryKind::kPrefix, Ids(1, 512));
  tainted.taint = 400;
  EXPECT_EQ(store_.Begin(tainted).status().code(),
            absl::StatusCode::kInvalidArgument);
  SnapshotSpec session = Spec(EntryKind::kSession, Ids(1, 512));
  session.taint = 400;
  EXPECT_FALSE(store_.Begin(session).ok());  // its state is above the taint
  session.states[0].provenance = Provenance::kSession;
  EXPECT_TRUE(store_.Begin(session).ok());
  session.kind = EntryKind::kPrefix;
  EXPECT_FALSE(store_.Begin(session).ok());
  session.states[0].position = 600;
  EXPECT_FALSE(store_.Begin(session).ok());
}

TEST_F(StateStoreTest, ASnapshotInUseOutlivesItsEntry) {
  Put(Spec(EntryKind::kSession, Ids(1, 512)), 3);
  const auto found = Lookup(Ids(1, 512));
  const auto snapshot = store_.Take(found[0].entry, 512, Ids(1, 512));
  EXPECT_EQ(store_.Clear(), 1u);
  EXPECT_EQ(snapshot->blocks[0].data()[0], std::byte{3});
  EXPECT_EQ(store_.stats().session_bytes, 0u);
  EXPECT_FALSE(store_.Drop(found[0].entry));
}

TEST_F(StateStoreTest, GivesMemoryBackAndForgetsOtherModels) {
  Put(Spec(EntryKind::kSession, Ids(1, 512), "a"));
  Put(Spec(EntryKind::kSession, Ids(2, 512), "b"));
  EXPECT_EQ(store_.List().front().session_key, "b");
  EXPECT_EQ(store_.Free(1), Bytes(2));
  EXPECT_EQ(store_.List().size(), 1u);
  store_.DropForeign(Sha256().Update("model").Finish());
  EXPECT_EQ(store_.List().size(), 1u);
  store_.DropForeign(Sha256().Update("another").Finish());
  EXPECT_TRUE(store_.List().empty());
  EXPECT_EQ(store_.Free(1), 0u);
}

// An engine may ask one run of the service for what another offered.
TEST_F(StateStoreTest, NumbersOfTwoRunsDiffer) {
  StateStore other({5 * Bytes(2), 3 * Bytes(2)});
  Put(Spec(EntryKind::kSession, Ids(1, 512)));
  auto filling = other.Begin(Spec(EntryKind::kSession, Ids(1, 512)));
  ASSERT_TRUE(filling.ok());
  (*filling)->Commit();
  const std::uint64_t number = store_.List().at(0).entry;
  EXPECT_NE(other.List().at(0).entry, number);
  EXPECT_EQ(other.Take(number, 512, Ids(1, 512)), nullptr);
}

// What a restore reads cannot be freed: it counts, and nobody goes in vain.
TEST_F(StateStoreTest, WhatIsReadIsInTheBudget) {
  for (std::uint64_t i = 1; i <= 5; ++i) {
    Put(Spec(EntryKind::kSession, Ids(i, 512), std::to_string(i)));
  }
  const auto entry = Lookup(Ids(1, 512)).at(0).entry;
  auto snapshot = store_.Take(entry, 512, Ids(1, 512));
  ASSERT_NE(snapshot, nullptr);
  EXPECT_TRUE(store_.Drop(entry));
  EXPECT_EQ(store_.stats().held_bytes, Bytes(2));
  EXPECT_EQ(store_.stats().sessions, 4u);
  // Room for one is made by another's going.
  Put(Spec(EntryKind::kSession, Ids(6, 512), "6"));
  EXPECT_EQ(store_.stats().sessions, 4u);
  EXPECT_EQ(store_.stats().evicted_sessions, 1u);
  snapshot.reset();
  EXPECT_EQ(store_.stats().held_bytes, 0u);
  Put(Spec(EntryKind::kSession, Ids(7, 512), "7"));
  EXPECT_EQ(store_.stats().evicted_sessions, 1u);
}

TEST_F(StateStoreTest, WhatIsReadIsNoVictim) {
  std::vector<std::shared_ptr<const Snapshot>> read;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    Put(Spec(EntryKind::kSession, Ids(i, 512), std::to_string(i)));
    const auto entry = Lookup(Ids(i, 512)).at(0).entry;
    if (i < 5) read.push_back(store_.Take(entry, 512, Ids(i, 512), false));
  }
  // The newest is the only one that is not.
  Put(Spec(EntryKind::kPrefix, Ids(6, 512)));
  EXPECT_TRUE(Lookup(Ids(5, 512)).empty());
  EXPECT_EQ(store_.stats().sessions, 4u);
  EXPECT_EQ(store_.Begin(Spec(EntryKind::kSession, Ids(7, 1024), "7"))
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store_.stats().refused_in_use, 1u);
  EXPECT_EQ(store_.stats().refused_too_large, 0u);
  EXPECT_EQ(store_.stats().prefixes, 1u);
  read.clear();
  EXPECT_TRUE(store_.Begin(Spec(EntryKind::kSession, Ids(7, 1024), "7")).ok());
}

// A request that leaves no trace changes no order.
TEST_F(StateStoreTest, AReadWithoutATouchLeavesTheOrder) {
  for (std::uint64_t i = 1; i <= 5; ++i) {
    Put(Spec(EntryKind::kSession, Ids(i, 512), std::to_string(i)));
  }
  const auto entry = Lookup(Ids(1, 512)).at(0).entry;
  ASSERT_NE(store_.Take(entry, 512, Ids(1, 512), /*touch=*/false), nullptr);
  EXPECT_EQ(store_.stats().hits, 1u);
  EXPECT_EQ(store_.List().back().hits, 0u);
  Put(Spec(EntryKind::kSession, Ids(6, 512), "6"));
  EXPECT_TRUE(Lookup(Ids(1, 512)).empty());
}

}  // namespace
}  // namespace holdfast::cachesvc
