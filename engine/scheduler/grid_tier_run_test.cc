// A grid backend and the tiers: what was kept as `grid` serves everyone and is
// a cold run's, bit for bit; what a conversation decoded serves that
// conversation alone and comes back as the bytes that were kept.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cache/state_image.h"
#include "engine/scheduler/read_back.h"
#include "engine/scheduler/session_spill.h"
#include "engine/testing/engine_variants.h"
#include "engine/testing/fake_tiers.h"
#include "engine/testing/test_engine.h"
#include "engine/testing/tier_node.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine::testing {
namespace {

constexpr int kGrid = 1024;

Request Of(std::string session, Ids prompt, int max_tokens = 4) {
  Request request = MakeRequest(std::move(prompt), max_tokens);
  request.session_key = std::move(session);
  return request;
}

class GridTierRunTest : public ::testing::TestWithParam<FakeModel::Kind> {
 protected:
  GridTierRunTest() { model_.launch_matters = true; }
  std::unique_ptr<TierNode> Make(const TierNode* from = nullptr) {
    return std::make_unique<TierNode>(
        std::make_unique<TestEngine>(model_, backend_, 32, FakeTokenizer(),
                                     kGrid),
        from);
  }
  static void Spill(TierNode& node) {
    node.Spill();
    node.engine->CheckPool();
  }
  // Every byte of rows and sections of the resident, of its first `rows`.
  std::vector<std::byte> Bytes(EngineState& state, int rows) {
    const Sequence& resident = *state.seats.front().resident;
    std::vector<std::byte> bytes;
    const AlignedBytes block = AllocateAligned(state.pool.block_bytes());
    for (int at = 0; at < rows; at += kBlockTokens) {
      std::memcpy(block.get(), resident.table.pointer(at / kBlockTokens),
                  state.pool.block_bytes());
      if (rows - at < kBlockTokens) {
        backend_.ZeroBlockRows(model_.kv_shape(), block.get(), rows - at);
      }
      bytes.insert(bytes.end(), block.get(),
                   block.get() + model_.layout().RowBytes() * kBlockTokens);
    }
    if (rows != resident.rows()) return bytes;
    const auto places = model::ComputeSectionOffsets(model_.layout());
    for (std::size_t i = 0; i < model_.layout().sections.size(); ++i) {
      const std::byte* section = resident.sections.get() + places.offsets[i];
      bytes.insert(bytes.end(), section,
                   section + model_.layout().sections[i].bytes);
    }
    return bytes;
  }

  // What of a spilled conversation others may use: a model without recurrent
  // state takes anchors at prompts' ends alone.
  int LineBelow(int length) const {
    const int line = length / kGrid * kGrid;
    return GetParam() == FakeModel::Kind::kRecurrent || line == length ? line
                                                                       : 0;
  }

  FakeModel model_{GetParam()};
  FakeBackend backend_{kernels::Exactness::kGrid};
};

TEST_P(GridTierRunTest, OnlyItsOwnSessionResumesAtTheEndOfASpill) {
  for (const int length : {700, kGrid, 1500}) {
    const auto old = Make();
    const Ids prompt = SomeIds(length, length);
    const Answer first = old->engine->Run(Of("a", prompt, 20));
    const std::vector<std::byte> saved =
        Bytes(old->engine->state(), length + 19);
    Spill(*old);
    for (const FakeTiers::Entry& entry : old->tiers->entries) {
      EXPECT_EQ(entry.taint, length);
    }
    const Ids next = Joined(Joined(prompt, first.ids), SomeIds(400, 2));
    for (const char* session : {"b", ""}) {
      const auto node = Make(old.get());
      const Answer other = node->RunChecked(Of(session, next));
      EXPECT_EQ(other.result.cache.resumed_at, LineBelow(length))
          << length << " " << session;
    }
    const auto node = Make(old.get());
    const Answer own = node->engine->Run(Of("a", next));
    EXPECT_EQ(own.result.cache.source, CacheSource::kSpill);
    EXPECT_EQ(own.result.cache.resumed_at, length + 19);
    EXPECT_EQ(own.result.digests->taint, length);
    EXPECT_FALSE(own.result.as_cold);
    EXPECT_TRUE(first.result.as_cold);
    // The rows are the bytes that were kept, and nobody else finds them.
    const std::vector<std::byte> back =
        Bytes(node->engine->state(), length + 19);
    const std::size_t rows = model_.layout().RowBytes() * length;
    ASSERT_GE(back.size(), rows);
    const int whole = (length + 19) / kBlockTokens * kBlockTokens;
    EXPECT_EQ(std::memcmp(back.data(), saved.data(),
                          model_.layout().RowBytes() * whole),
              0);
    const Answer after = node->RunChecked(Of("b", next));
    EXPECT_EQ(after.result.cache.resumed_at, length / kGrid * kGrid);
    // As the next turn in place would have gone on.
    const Answer in_place = old->engine->Run(Of("a", next));
    ASSERT_EQ(in_place.result.cache.source, CacheSource::kEnd);
    ExpectSame(own, in_place);
  }
}

// Its lines above the first row that it decoded are no place to resume at for a
// prompt that has not all of it.
TEST_P(GridTierRunTest, NotEvenItsOwnSessionResumesInTheMiddleOfASpill) {
  const auto old = Make();
  const Ids prompt = SomeIds(700, 1);
  const Answer first = old->engine->Run(Of("a", prompt, kGrid));
  Spill(*old);
  const Ids whole = Joined(prompt, first.ids);
  for (FakeTiers::Entry& entry : old->tiers->entries) {
    if (entry.position < kGrid) continue;
    entry.position = kGrid;
    entry.ids.resize(kGrid);
    entry.rows.resize(model_.layout().RowBytes() * kGrid);
    entry.kind = StoredState::kLine;
  }
  const auto node = Make(old.get());
  Ids edited(whole.begin(), whole.begin() + kGrid + 100);
  edited.back() ^= 1;
  const Answer answer = node->RunChecked(Of("a", edited));
  EXPECT_LE(answer.result.cache.resumed_at, 700);
}

TEST_P(GridTierRunTest, AnExactRepeatOfAPromptServesAnySession) {
  const auto old = Make();
  const Ids prompt = SomeIds(1300, 1);
  old->engine->Run(Of("a", prompt, 1));
  ASSERT_EQ(old->engine->resident()->taint, kUntainted);
  Spill(*old);
  // The pool has whole chunks of the same ids, with other bits in the part
  // that the prompt's last launch computed.
  for (const bool crowded : {false, true}) {
    const auto node = Make(old.get());
    if (crowded) {
      node->tiers->outcome = TierLookup::Outcome::kDetached;
      node->engine->Run(Of("c", Joined(prompt, SomeIds(900, 2)), 1));
      node->tiers->outcome = TierLookup::Outcome::kAnswered;
    }
    const Answer again = node->RunChecked(Of("b", prompt, 1));
    EXPECT_EQ(again.result.cache.source, CacheSource::kSpill);
    EXPECT_EQ(again.result.cache.resumed_at, 1300);
    EXPECT_EQ(again.result.cache.restored, crowded ? 1300 - kGrid : 1300);
    // A longer prompt of another session starts at the line.
    const auto other = Make(old.get());
    const Answer longer =
        other->RunChecked(Of("b", Joined(prompt, SomeIds(300, 7)), 1));
    EXPECT_EQ(longer.result.cache.resumed_at, LineBelow(1300));
  }
}

TEST_P(GridTierRunTest, EachTurnGoesToTheStateStoreWithItsTaint) {
  const auto old = Make();
  old->tiers->store_entry_bytes = std::uint64_t{1} << 40;
  old->tiers->store_line = kGrid;
  const Ids prompt = SomeIds(kGrid + 300, 15);
  const Answer turn = old->engine->Run(Of("a", prompt, 5));
  ASSERT_EQ(old->tiers->entries.size(), 2u);
  EXPECT_EQ(old->tiers->entries[0].position, kGrid);
  EXPECT_EQ(old->tiers->entries[0].taint, kUntainted);
  EXPECT_EQ(old->tiers->entries[1].position, kGrid + 304);
  EXPECT_EQ(old->tiers->entries[1].taint, kGrid + 300);
  const Ids next = Joined(Joined(prompt, turn.ids), SomeIds(300, 16));
  const auto own = Make(old.get());
  const Answer answer = own->engine->Run(Of("a", next));
  EXPECT_EQ(answer.result.cache.source, CacheSource::kStore);
  EXPECT_EQ(answer.result.cache.resumed_at, kGrid + 304);
  EXPECT_EQ(answer.result.digests->taint, kGrid + 300);
  ExpectSame(answer, old->engine->Run(Of("a", next)));
  const auto other = Make(old.get());
  const Answer head = other->RunChecked(Of("b", next));
  EXPECT_EQ(head.result.cache.source, CacheSource::kStore);
  EXPECT_EQ(head.result.cache.resumed_at, kGrid);
}

// A line that a conversation passed on top of its own rows is no line of the
// disk tier or of a prefix entry.
TEST_P(GridTierRunTest, NothingOnTopOfSessionRowsIsStoredAsALine) {
  const auto node = Make();
  const Ids prompt = SomeIds(1500, 1);
  const Answer first = node->engine->Run(Of("a", prompt, 3));
  node->tiers->admit = {2 * kGrid, 3 * kGrid};
  node->tiers->store_line = 3 * kGrid;
  const Ids next = Joined(Joined(prompt, first.ids), SomeIds(2000, 2));
  const Answer second = node->engine->Run(Of("a", next));
  ASSERT_EQ(second.result.cache.source, CacheSource::kEnd);
  EXPECT_TRUE(node->tiers->entries.empty());
}

TEST_P(GridTierRunTest, WhatIsReadBackIsTheConversationsStill) {
  const auto old = Make();
  const Ids prompt = SomeIds(2 * kGrid + 100, 3);
  const Answer first = old->engine->Run(Of("a", prompt, 20));
  const int end = 2 * kGrid + 119;
  const std::vector<std::byte> saved = Bytes(old->engine->state(), end);
  Spill(*old);
  const auto node = Make(old.get());
  ReadBackResidents(node->engine->state(), [] { return false; });
  node->engine->CheckPool();
  node->engine->CheckAnchors();
  const auto& resident = node->engine->resident();
  ASSERT_TRUE(resident);
  EXPECT_EQ(resident->taint, 2 * kGrid + 100);
  EXPECT_TRUE(Bytes(node->engine->state(), end) == saved);
  const Ids next = Joined(Joined(prompt, first.ids), SomeIds(40, 2));
  Request other = Of("b", next);
  other.cache_mode = CacheMode::kReadOnly;
  const Answer cold = node->RunChecked(other);
  EXPECT_EQ(cold.result.cache.resumed_at, 2 * kGrid);
  const Answer own = node->engine->Run(Of("a", next));
  EXPECT_EQ(own.result.cache.source, CacheSource::kSpill);
  EXPECT_EQ(own.result.cache.resumed_at, end);
  ExpectSame(own, old->engine->Run(Of("a", next)));
}

INSTANTIATE_TEST_SUITE_P(Models, GridTierRunTest, ModelKinds(), ModelKindName);

}  // namespace
}  // namespace holdfast::engine::testing
