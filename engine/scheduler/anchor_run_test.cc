// Requests of a model with recurrent state: where they resume, and that every
// resume gives what a cold run gives.
#include <string>
#include <vector>

#include "engine/scheduler/request_run.h"
#include "engine/testing/engine_variants.h"
#include "engine/testing/test_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

// The same ids up to `at`, others from there on.
Ids Edited(Ids ids, int at) {
  ids[at] = (ids[at] + 1) % 250;
  return ids;
}

Request WithMessages(Ids prompt, std::vector<int> messages,
                     int max_tokens = 4) {
  Request request = MakeRequest(std::move(prompt), max_tokens);
  request.messages = std::move(messages);
  return request;
}

class AnchorRunTest : public ::testing::Test {
 protected:
  std::unique_ptr<TestEngine> Make(int blocks, int anchors,
                                   int max_rows = 512) {
    return std::make_unique<TestEngine>(model_, backend_, blocks,
                                        FakeTokenizer(), max_rows, anchors);
  }
  // Runs it warm and, leaving no trace, cold.
  Answer RunChecked(TestEngine& engine, const Request& request) {
    const Answer warm = engine.Run(request);
    ExpectSame(warm, engine.Cold(request));
    return warm;
  }
  void ExpectParked(const Answer& answer, int position, AnchorKind kind) {
    EXPECT_EQ(answer.result.cache.source, CacheSource::kParked);
    ExpectPlace(answer, position, kind);
  }
  void ExpectResume(const Answer& answer, int position, AnchorKind kind) {
    EXPECT_EQ(answer.result.cache.source, kind == AnchorKind::kEnd
                                              ? CacheSource::kEnd
                                              : CacheSource::kResident);
    ExpectPlace(answer, position, kind);
  }
  void ExpectPlace(const Answer& answer, int position, AnchorKind kind) {
    EXPECT_EQ(answer.result.cache.resumed_at, position);
    EXPECT_EQ(answer.result.cache.anchor, kind);
    EXPECT_EQ(answer.result.cache.computed,
              answer.result.prompt_tokens - position);
  }
  std::vector<int> Positions(TestEngine& engine) {
    std::vector<int> positions;
    for (const AnchorRef& anchor : engine.resident()->anchors) {
      positions.push_back(anchor->position);
    }
    return positions;
  }

  FakeModel model_{FakeModel::Kind::kRecurrent};
  FakeBackend backend_;
  const std::unique_ptr<TestEngine> owned_ = Make(16, 32);
  TestEngine& engine_ = *owned_;
};

TEST_F(AnchorRunTest, APrefillLeavesAnchorsAtLinesMessagesAndItsEnd) {
  const Answer answer = RunChecked(
      engine_, WithMessages(SomeIds(2500, 1), {0, 1500, 2048, 2300}));
  EXPECT_THAT(Positions(engine_), ElementsAre(1024, 1500, 2048, 2300, 2500));
  EXPECT_EQ(answer.result.cache.anchors_taken, 5);
  for (int position : Positions(engine_)) {
    EXPECT_THAT(answer.progress, Contains(position));  // a step ended there
  }
}

TEST_F(AnchorRunTest, ResumesAtTheDeepestAnchorBelowTheDifference) {
  const Ids base = SomeIds(2500, 1);
  const Request first = WithMessages(base, {1500, 2300});
  const struct {
    int edit;
    int resumed;
    AnchorKind kind;
  } cases[] = {
      {2499, 2300, AnchorKind::kMessage}, {2300, 2300, AnchorKind::kMessage},
      {2299, 2048, AnchorKind::kLine},    {2047, 1500, AnchorKind::kMessage},
      {1500, 1500, AnchorKind::kMessage}, {1499, 1024, AnchorKind::kLine},
      {1024, 1024, AnchorKind::kLine}};
  for (const auto& c : cases) {
    engine_.Run(first);
    ExpectResume(
        RunChecked(engine_, WithMessages(Edited(base, c.edit), {1500, 2300})),
        c.resumed, c.kind);
  }
}

TEST_F(AnchorRunTest, WithoutAnAnchorBelowItIsAMissWithThatReason) {
  const Ids base = SomeIds(2500, 1);
  engine_.Run(MakeRequest(base));
  const Answer inside = RunChecked(engine_, MakeRequest(Edited(base, 1000)));
  EXPECT_EQ(inside.result.cache.source, CacheSource::kNone);
  EXPECT_EQ(inside.result.cache.miss, MissReason::kNoAnchor);
  EXPECT_EQ(inside.result.cache.anchor, std::nullopt);
  const Answer other = RunChecked(engine_, MakeRequest(Edited(base, 100)));
  EXPECT_EQ(other.result.cache.miss, MissReason::kCold);
}

TEST_F(AnchorRunTest, AnExactRepeatForwardsNothing) {
  for (int length : {255, 256, 257, 1024, 1300}) {
    const Request request = MakeRequest(SomeIds(length, length), 1);
    const Answer first = engine_.Run(request);
    const int before = model_.forwards();
    const Answer again = engine_.Run(request);
    EXPECT_EQ(model_.forwards(), before);
    EXPECT_EQ(again.result.cache.resumed_at, length);
    EXPECT_EQ(again.result.cache.computed, 0);
    ExpectSame(again, first);
  }
}

TEST_F(AnchorRunTest, TheNextTurnResumesAtTheEndOfTheAnswer) {
  for (int generated : {1, 2, 63, 300}) {
    const Ids prompt = SomeIds(250, generated);
    const Answer first = engine_.Run(MakeRequest(prompt, generated));
    const Ids next = Joined(Joined(prompt, first.ids), SomeIds(30, 2));
    ExpectResume(RunChecked(engine_, MakeRequest(next)), 249 + generated,
                 AnchorKind::kEnd);
  }
}

TEST_F(AnchorRunTest, ACancelledPrefillIsGoneOnFromItsLastRow) {
  const auto engine = Make(16, 8, /*max_rows=*/48);
  const Request request = MakeRequest(SomeIds(900, 1));
  RecordingSink sink;
  const Answer cut = engine->Run(request, sink, [&] {
    return !sink.progress.empty() && sink.progress.back() >= 300;
  });
  ASSERT_EQ(cut.result.reason, FinishReason::kCancelled);
  ExpectResume(RunChecked(*engine, request), cut.result.cache.computed,
               AnchorKind::kEnd);
}

// A client edits its last message three times, then one in the middle three
// times: each time only what follows the edit is read.
TEST_F(AnchorRunTest, EditsReReadOnlyFromTheMessage) {
  const std::vector<int> messages = {700, 1300, 1700};
  Ids prompt = SomeIds(2000, 1);
  engine_.Run(WithMessages(prompt, messages, 20));
  for (int edit = 1; edit <= 3; ++edit) {
    prompt = Joined(Ids(prompt.begin(), prompt.begin() + 1710),
                    SomeIds(100 * edit, 10 + edit));
    ExpectResume(RunChecked(engine_, WithMessages(prompt, messages, 20)), 1700,
                 AnchorKind::kMessage);
  }
  for (int edit = 1; edit <= 3; ++edit) {
    prompt = Joined(Ids(prompt.begin(), prompt.begin() + 720),
                    SomeIds(300 + edit, 20 + edit));
    ExpectResume(RunChecked(engine_, WithMessages(prompt, {700}, 20)), 700,
                 AnchorKind::kMessage);
  }
}

// With its last, partial block, and the newest four anchors.
TEST_F(AnchorRunTest, AnotherConversationInBetweenLeavesWhatIsParked) {
  const Ids a = SomeIds(1400, 1);
  const Request request = WithMessages(a, {600, 1200, 1390});
  engine_.Run(request);
  RunChecked(engine_, MakeRequest(SomeIds(800, 2)));
  ExpectParked(RunChecked(engine_, request), 1400, AnchorKind::kPromptEnd);
  RunChecked(engine_, MakeRequest(SomeIds(800, 3)));
  ExpectParked(RunChecked(engine_, MakeRequest(Edited(a, 1300))), 1200,
               AnchorKind::kMessage);
}

TEST_F(AnchorRunTest, GoingBackToAnEarlierBranch) {
  const Ids a = SomeIds(2000, 1);
  engine_.Run(WithMessages(a, {500, 1700}));
  RunChecked(engine_, WithMessages(Edited(a, 510), {500}));
  // The rows that only the first branch had are parked.
  ExpectParked(RunChecked(engine_, WithMessages(Edited(a, 1710), {500, 1700})),
               1700, AnchorKind::kMessage);
}

TEST_F(AnchorRunTest, WhatLostItsRowsIsGone) {
  const auto engine = Make(/*blocks=*/6, 32);
  const Ids a = SomeIds(1200, 1);
  engine->Run(MakeRequest(a));
  engine->Run(MakeRequest(SomeIds(1200, 2)));  // takes the blocks of a
  EXPECT_TRUE(engine->state().retained.all().empty());
  EXPECT_GT(engine->state().retained.counters().anchors_cut, 0u);
  const Answer again = RunChecked(*engine, MakeRequest(a));
  EXPECT_EQ(again.result.cache.resumed_at, 0);
  EXPECT_EQ(again.result.cache.miss, MissReason::kEvicted);
}

// Both have the same rows up to 1,000; neither may use what only the other's
// anchor says.
TEST_F(AnchorRunTest, SharedBlocksWithoutASharedAnchor) {
  const Ids a = SomeIds(1300, 1);
  const Ids b = Joined(Ids(a.begin(), a.begin() + 1000), SomeIds(300, 2));
  RunChecked(engine_, MakeRequest(a));
  EXPECT_EQ(RunChecked(engine_, MakeRequest(b)).result.cache.miss,
            MissReason::kNoAnchor);
  // The block in which they part is the last one of each one's pinned head.
  for (const Ids& branch : {Edited(a, 1200), Edited(b, 1200)}) {
    const Answer back = RunChecked(engine_, MakeRequest(branch));
    ExpectPlace(back, 1024, AnchorKind::kLine);
    EXPECT_EQ(back.result.cache.source, CacheSource::kPinned);
  }
}

TEST_F(AnchorRunTest, ASaltKeepsAnchorsApart) {
  Request request = MakeRequest(SomeIds(1100, 1));
  request.salt = "a";
  const Answer first = engine_.Run(request);
  request.salt = "b";
  const Answer other = engine_.Run(request);
  EXPECT_EQ(other.result.cache.source, CacheSource::kNone);
  ExpectSame(other, first);
  request.salt = "a";
  ExpectParked(engine_.Run(request), 1100, AnchorKind::kPromptEnd);
}

TEST_F(AnchorRunTest, BypassAndReadOnlyLeaveNoTrace) {
  const Ids a = SomeIds(1500, 1);
  engine_.Run(WithMessages(a, {1300}));
  engine_.Run(WithMessages(SomeIds(700, 2), {600}, 20));
  const std::string before = engine_.Describe();
  for (CacheMode mode : {CacheMode::kBypass, CacheMode::kReadOnly}) {
    for (const Ids& prompt : {a, Edited(a, 1100), SomeIds(700, 2),
                              Edited(SomeIds(700, 2), 650), SomeIds(900, 3)}) {
      Request request = WithMessages(prompt, {600}, 40);
      request.cache_mode = mode;
      const Answer answer = engine_.Run(request);
      EXPECT_EQ(answer.result.cache.anchors_taken, 0);
      EXPECT_EQ(engine_.Describe(), before);
      ExpectSame(answer, engine_.Cold(request));
    }
  }
  Request request = WithMessages(a, {1300});
  request.cache_mode = CacheMode::kReadOnly;
  EXPECT_EQ(engine_.Run(request).result.cache.resumed_at, 1500);
}

TEST_F(AnchorRunTest, AFailureOfTheModelPublishesNoAnchor) {
  engine_.Run(MakeRequest(SomeIds(300, 1)));
  for (int broken : {1499, 1502}) {
    model_.broken_position = broken;
    const Answer bad = engine_.Run(WithMessages(SomeIds(1500, 2), {1200}));
    EXPECT_EQ(bad.result.reason, FinishReason::kError);
    EXPECT_EQ(engine_.state().anchor_slots.live(), 1);
  }
  model_.broken_position.reset();
  // It had lost its seat to the first of them.
  ExpectParked(engine_.Run(MakeRequest(SomeIds(300, 1))), 300,
               AnchorKind::kPromptEnd);
}

TEST_F(AnchorRunTest, NoAnchorIsCopiedThatIsSureToGo) {
  const auto engine = Make(16, /*anchors=*/8);
  std::vector<int> messages;
  for (int at = 50; at < 4000; at += 50) messages.push_back(at);
  const Answer answer =
      RunChecked(*engine, WithMessages(SomeIds(4000, 1), messages));
  EXPECT_EQ(answer.result.cache.anchors_taken, 8);
  EXPECT_EQ(engine->state().anchors_dropped.budget, 0u);
  const std::vector<int> kept = Positions(*engine);
  for (int position : {1024, 2048, 3072, 3900, 3950, 4000}) {
    EXPECT_THAT(kept, Contains(position));
  }
  EXPECT_EQ(kept.size(), 8u);
}

// A conversation that grows gives up old anchors for new ones, in the order of
// the rule, and only when their slot is needed.
TEST_F(AnchorRunTest, AGrowingConversationThinsItsOldAnchors) {
  const auto engine = Make(16, /*anchors=*/6);
  Ids prompt = SomeIds(300, 1);
  std::vector<int> messages;
  for (int turn = 1; turn <= 12; ++turn) {
    messages.push_back(static_cast<int>(prompt.size()));
    prompt = Joined(prompt, SomeIds(200, turn + 5));
    const Answer answer =
        RunChecked(*engine, WithMessages(prompt, messages, 10));
    if (turn > 1) {
      EXPECT_GE(answer.result.cache.resumed_at,
                static_cast<int>(prompt.size()) - 210);
    }
    const std::vector<int> kept = Positions(*engine);
    EXPECT_LE(kept.size(), 6u);
    EXPECT_THAT(kept, Contains(messages.back()));
    EXPECT_THAT(kept, Contains(static_cast<int>(prompt.size())));
    for (int line = 1024; line <= static_cast<int>(prompt.size());
         line += 1024) {
      EXPECT_THAT(kept, Contains(line));
    }
    prompt = Joined(prompt, answer.ids);
  }
  EXPECT_GT(engine->state().anchors_dropped.budget, 0u);
}

TEST_F(AnchorRunTest, EarlierConversationsPayFromTheirOwnBudgets) {
  const auto engine = Make(16, /*anchors=*/3);
  engine->Run(WithMessages(SomeIds(1024, 1), {300, 600}));  // 3 anchors
  engine->Run(WithMessages(SomeIds(768, 2), {300, 600}));   // 3 more
  EXPECT_EQ(engine->state().anchor_slots.live(), 6);
  EXPECT_TRUE(engine->state().anchor_slots.full());
  ExpectParked(RunChecked(*engine, MakeRequest(SomeIds(1024, 1))), 1024,
               AnchorKind::kPromptEnd);
  ExpectParked(RunChecked(*engine, MakeRequest(SomeIds(768, 2))), 768,
               AnchorKind::kPromptEnd);
}

TEST_F(AnchorRunTest, OnlySoManyEarlierConversationsAreKept) {
  const auto engine = Make(/*blocks=*/3 * kMaxKept, 2 * kMaxKept);
  const auto prompt = [](int i) { return SomeIds(257, i); };
  for (int i = 0; i < kMaxKept + 3; ++i) {
    engine->Run(WithMessages(prompt(i), {200}));
  }
  EXPECT_EQ(engine->state().retained.all().size(),
            static_cast<std::size_t>(kMaxKept));
  EXPECT_EQ(engine->Run(WithMessages(prompt(1), {200})).result.cache.miss,
            MissReason::kNoAnchor);
  ExpectParked(RunChecked(*engine, WithMessages(prompt(10), {200})), 257,
               AnchorKind::kPromptEnd);
}

TEST_F(AnchorRunTest, WithoutABudgetTheEndOfAnAnswerIsStillResumed) {
  const auto engine = Make(16, /*anchors=*/0);
  const Ids prompt = SomeIds(1500, 1);
  const Answer first = engine->Run(MakeRequest(prompt, 20));
  EXPECT_EQ(first.result.cache.anchors_taken, 0);
  const Ids next = Joined(Joined(prompt, first.ids), SomeIds(30, 2));
  ExpectResume(RunChecked(*engine, MakeRequest(next)), 1519, AnchorKind::kEnd);
  EXPECT_EQ(RunChecked(*engine, MakeRequest(prompt)).result.cache.miss,
            MissReason::kNoAnchor);
}

// The copy of a block's rows finds no room: the next anchor that needs none.
TEST_F(AnchorRunTest, WhereTheLastBlockCannotBeCopiedAHigherAnchorServes) {
  const auto engine = Make(/*blocks=*/6, 32);
  const Ids prompt = SomeIds(1532, 1);
  engine->Run(WithMessages(prompt, {1400}));
  const Answer again = RunChecked(*engine, WithMessages(prompt, {1400}));
  ExpectResume(again, 1024, AnchorKind::kLine);
}

}  // namespace
}  // namespace holdfast::engine::testing
