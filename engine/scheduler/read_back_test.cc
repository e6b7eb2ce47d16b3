// What was resident at a planned stop is resident after the next start.
#include "engine/scheduler/read_back.h"

#include <chrono>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "engine/cache/state_image.h"
#include "engine/scheduler/scheduler.h"
#include "engine/scheduler/session_spill.h"
#include "engine/testing/engine_variants.h"
#include "engine/testing/fake_tiers.h"
#include "engine/testing/test_engine.h"
#include "engine/testing/tier_node.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine::testing {
namespace {

using ::testing::ElementsAre;

constexpr int kGrid = 1024;

class ReadBackTest : public ::testing::TestWithParam<FakeModel::Kind> {
 protected:
  std::unique_ptr<TierNode> Make(const TierNode* from, int blocks = 24) {
    return std::make_unique<TierNode>(
        std::make_unique<TestEngine>(model_, backend_, blocks, FakeTokenizer()),
        from);
  }
  // After a start with what `from` stored, if any.
  std::unique_ptr<TierNode> Start(const TierNode* from, int blocks = 24) {
    auto node = Make(from, blocks);
    ReadBackResidents(node->engine->state(), [] { return false; });
    node->engine->CheckPool();
    node->engine->CheckAnchors();
    return node;
  }

  FakeModel model_{GetParam()};
  FakeBackend backend_;
  const Ids prompt_ = SomeIds(2 * kGrid + 77, 1);
};

TEST_P(ReadBackTest, TheNextTurnFindsItInPlaceAndCountsItOnce) {
  const auto old = Start(nullptr);
  Request first = MakeRequest(prompt_, 5);
  first.session_key = "a";
  const Answer turn = old->engine->Run(first);
  old->Spill();
  const auto node = Start(old.get());
  ASSERT_TRUE(node->engine->resident());
  EXPECT_EQ(node->engine->resident()->session_key, "a");
  EXPECT_EQ(node->engine->resident()->rows(), 2 * kGrid + 77 + 4);
  const int restores = node->tiers->restores;
  const Ids next = Joined(Joined(prompt_, turn.ids), SomeIds(300, 2));
  const Answer answer = node->RunChecked(MakeRequest(next, 5));
  EXPECT_EQ(answer.result.cache.source, CacheSource::kSpill);
  EXPECT_EQ(answer.result.cache.resumed_at, 2 * kGrid + 77 + 4);
  EXPECT_EQ(answer.result.cache.restored, 2 * kGrid + 77 + 4);
  EXPECT_THAT(CachedBySource(answer.result.cache),
              ElementsAre(std::pair(CacheSource::kSpill, 2 * kGrid + 77 + 4)));
  // In place: nothing is read for the request.
  EXPECT_EQ(node->tiers->restores, restores);
  // As any resident from then on.
  const Ids third = Joined(Joined(next, answer.ids), SomeIds(10, 3));
  const Answer again = node->RunChecked(MakeRequest(third));
  EXPECT_EQ(again.result.cache.source, CacheSource::kEnd);
}

TEST_P(ReadBackTest, ItsLineAnchorsComeBackToo) {
  const auto old = Start(nullptr);
  old->engine->Run(MakeRequest(prompt_, 5));
  old->Spill();
  const auto node = Start(old.get());
  std::vector<int> lines;
  for (const AnchorRef& anchor : node->engine->resident()->anchors) {
    lines.push_back(anchor->position);
  }
  if (GetParam() == FakeModel::Kind::kRecurrent) {
    EXPECT_THAT(lines, ElementsAre(kGrid, 2 * kGrid));
  } else {
    EXPECT_THAT(lines, ElementsAre());
  }
  // The user edits the last message.
  Ids edited = prompt_;
  edited.back() = (edited.back() + 1) % 250;
  const Answer answer = node->RunChecked(MakeRequest(edited));
  EXPECT_EQ(answer.result.cache.source, CacheSource::kSpill);
  EXPECT_GE(answer.result.cache.resumed_at, 2 * kGrid);
}

TEST_P(ReadBackTest, ItsTurnsAnchorComesBackToo) {
  const auto old = Start(nullptr);
  Request turn = MakeRequest(prompt_, 5);
  turn.messages = {50, 900, 2 * kGrid + 10, 2 * kGrid + 60};
  turn.turn = 900;
  old->engine->Run(turn);
  old->Spill();
  const auto node = Start(old.get());
  std::vector<Anchor> messages;
  for (const AnchorRef& anchor : node->engine->resident()->anchors) {
    if (anchor->kind == AnchorKind::kMessage) messages.push_back(*anchor);
  }
  // A new user message, and a template that changes the turn's answers.
  const Ids next =
      Joined(Ids(prompt_.begin(), prompt_.begin() + 903), SomeIds(800, 8));
  const Answer answer = node->RunChecked(MakeRequest(next));
  EXPECT_EQ(answer.result.cache.source, CacheSource::kSpill);
  if (GetParam() == FakeModel::Kind::kRecurrent) {
    ASSERT_EQ(messages.size(), 2u);
    EXPECT_EQ(messages[0].position, 900);
    EXPECT_TRUE(messages[0].turn);
    EXPECT_EQ(messages[1].position, 2 * kGrid + 60);
    EXPECT_FALSE(messages[1].turn);
    EXPECT_EQ(answer.result.cache.resumed_at, 900);
    EXPECT_EQ(answer.result.cache.anchor, AnchorKind::kMessage);
  } else {
    EXPECT_EQ(answer.result.cache.resumed_at, 903);
  }
}

// The newest message alone is kept, or the newest is the turn's.
TEST_P(ReadBackTest, AMessageThatIsNotTheTurnsComesBackAsWhatItIs) {
  if (GetParam() != FakeModel::Kind::kRecurrent) {
    GTEST_SKIP() << "its rows alone are resumed in";
  }
  for (const int turn : {0, 900}) {
    const auto old = Start(nullptr);
    Request request = MakeRequest(prompt_, 5);
    request.messages = {900};
    request.turn = turn;
    old->engine->Run(request);
    old->Spill();
    const auto node = Start(old.get());
    int messages = 0;
    for (const AnchorRef& anchor : node->engine->resident()->anchors) {
      if (anchor->kind != AnchorKind::kMessage) continue;
      ++messages;
      EXPECT_EQ(anchor->position, 900);
      EXPECT_EQ(anchor->turn, turn == 900);
    }
    EXPECT_EQ(messages, 1);
  }
}

TEST_P(ReadBackTest, AnotherSessionWithTheSameHead) {
  const auto old = Start(nullptr);
  old->engine->Run(MakeRequest(prompt_, 5));
  old->Spill();
  const auto node = Start(old.get());
  const Ids head(prompt_.begin(), prompt_.begin() + kGrid);
  const Ids other = Joined(head, SomeIds(500, 9));
  const Answer answer = node->RunChecked(MakeRequest(other));
  EXPECT_EQ(answer.result.cache.source, CacheSource::kSpill);
  EXPECT_EQ(answer.result.cache.restored, kGrid);
  const Answer again = node->RunChecked(MakeRequest(other));
  EXPECT_NE(again.result.cache.source, CacheSource::kSpill);
}

TEST_P(ReadBackTest, ReadOnlyAndBypassLeaveTheCountAsItIs) {
  const auto old = Start(nullptr);
  old->engine->Run(MakeRequest(prompt_, 5));
  old->Spill();
  const auto node = Start(old.get());
  Request request = MakeRequest(Joined(prompt_, SomeIds(20, 5)));
  for (const CacheMode mode :
       {CacheMode::kReadOnly, CacheMode::kBypass, CacheMode::kReadOnly}) {
    request.cache_mode = mode;
    const Answer answer = node->engine->Run(request);
    EXPECT_EQ(answer.result.cache.source, mode == CacheMode::kBypass
                                              ? CacheSource::kNone
                                              : CacheSource::kSpill);
  }
  request.cache_mode = CacheMode::kDefault;
  EXPECT_EQ(node->RunChecked(request).result.cache.source, CacheSource::kSpill);
}

TEST_P(ReadBackTest, WithoutAPlannedStopNothingIsReadBack) {
  const auto old = Start(nullptr);
  const Answer turn = old->engine->Run(MakeRequest(prompt_, 5));
  old->tiers->killed = true;
  old->Spill();
  // It died before its stop had ended. The file is there for lookups.
  const auto node = Start(old.get());
  EXPECT_FALSE(node->engine->resident());
  EXPECT_EQ(node->tiers->restores, 0);
  const Ids next = Joined(Joined(prompt_, turn.ids), SomeIds(300, 2));
  const Answer answer = node->RunChecked(MakeRequest(next));
  EXPECT_EQ(answer.result.cache.source, CacheSource::kSpill);
}

TEST_P(ReadBackTest, WhatCannotBeReadBackIsNoLoss) {
  const auto old = Start(nullptr);
  old->engine->Run(MakeRequest(prompt_, 5));
  old->Spill();
  // Too few blocks.
  const auto small = Start(old.get(), 5);
  EXPECT_FALSE(small->engine->resident());
  EXPECT_EQ(small->engine->state().pool.counts().free, 5);
  EXPECT_EQ(small->RunChecked(MakeRequest(SomeIds(600, 4))).result.cache.source,
            CacheSource::kNone);
}

TEST_P(ReadBackTest, ADamagedFileIsNotReadBack) {
  const auto old = Start(nullptr);
  const Answer turn = old->engine->Run(MakeRequest(prompt_, 5));
  old->Spill();
  const auto node = Make(old.get());
  node->tiers->restore_status = absl::DataLossError("a sum");
  EngineState& state = node->engine->state();
  ReadBackResidents(state, [] { return false; });
  EXPECT_FALSE(state.seats.front().resident);
  EXPECT_EQ(state.pool.counts().free, 24);
  const Ids next = Joined(Joined(prompt_, turn.ids), SomeIds(300, 2));
  const Answer answer = node->RunChecked(MakeRequest(next));
  EXPECT_EQ(answer.result.cache.source, CacheSource::kNone);
  EXPECT_EQ(answer.result.cache.miss, MissReason::kCorrupt);
}

TEST_P(ReadBackTest, AClearedPoolCountsNothing) {
  const auto old = Start(nullptr);
  old->engine->Run(MakeRequest(prompt_, 5));
  old->Spill();
  const auto node = Start(old.get());
  node->engine->state().Clear();
  EXPECT_TRUE(node->engine->state().unclaimed.empty());
}

INSTANTIATE_TEST_SUITE_P(Models, ReadBackTest, ModelKinds(), ModelKindName);

}  // namespace
}  // namespace holdfast::engine::testing
