#include "engine/scheduler/run_loop.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/testing/engine_variants.h"
#include "engine/testing/loop_engine.h"
#include "engine/testing/scripted_drafter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine::testing {
namespace {

// Each test on models with and without recurrent state, on a backend on which
// any split is exact and on a grid backend.

class RunLoopTest : public EngineVariantTest {
 protected:
  std::unique_ptr<LoopEngine> Make(int blocks, int seats) {
    return std::make_unique<LoopEngine>(
        model_, backend_,
        LoopEngine::Size{
            .blocks = blocks, .seats = seats, .max_rows = grid() ? 1024 : 512});
  }
  // What the request gets from an engine of its own.
  Answer Alone(const Request& request) { return Make(20, 1)->Run(request); }

  // Tokens of each request: none is counted twice or left out.
  static void ExpectConserved(const Submitted& submitted) {
    const CacheReport& cache = submitted.result().cache;
    EXPECT_EQ(cache.resumed_at + cache.computed,
              submitted.result().prompt_tokens);
    int cached = 0;
    for (const auto& [source, rows] : CachedBySource(cache)) cached += rows;
    EXPECT_EQ(cached, cache.resumed_at);
  }
  // One stream, whatever happened on the way.
  static void ExpectOneStream(const Submitted& submitted) {
    EXPECT_EQ(static_cast<int>(submitted.sink->ids.size()),
              submitted.result().output_tokens);
    EXPECT_EQ(submitted.sink->starts, 1);
  }
};

TEST_P(RunLoopTest, AnswersAreDecodedTogether) {
  const auto engine = Make(16, 3);
  std::vector<Submitted> all;
  for (int i = 0; i < 3; ++i) {
    all.push_back(engine->Submit(MakeRequest(SomeIds(100 + i, i), 20)));
  }
  engine->RunUntil([&] {
    return std::ranges::all_of(
        all, [](const Submitted& s) { return s.sink->ids.size() > 2; });
  });
  const int launches = model_.launches();
  engine->Round();
  EXPECT_EQ(model_.launches() - launches, grid() ? 3 : 1);
  engine->RunAll();
  for (int i = 0; i < 3; ++i) {
    ExpectSame(all[i].answer(), Alone(MakeRequest(SomeIds(100 + i, i), 20)));
  }
  engine->Check();
}

TEST_P(RunLoopTest, PrefillStepsComeBetweenDecodeSteps) {
  const auto engine = Make(16, 2);
  const Submitted answer = engine->Submit(MakeRequest(SomeIds(50, 1), 60));
  engine->RunUntil([&] { return answer.sink->ids.size() == 3; });
  const Submitted prompt = engine->Submit(MakeRequest(SomeIds(2000, 2), 1));
  int last = static_cast<int>(answer.sink->ids.size());
  int steps = 0;
  model_.before_forward = [&](int position, int rows) {
    if (position >= 50 && rows == 1) return;
    // A prompt's step: the answer had a token since the last one.
    EXPECT_LE(rows, grid() ? 1024 : RunLoop::kBesideAnswers.rows);
    EXPECT_GT(static_cast<int>(answer.sink->ids.size()), last);
    last = static_cast<int>(answer.sink->ids.size());
    ++steps;
  };
  engine->RunUntil([&] { return prompt.ended(); });
  model_.before_forward = nullptr;
  EXPECT_GE(steps, grid() ? 2 : 8);
  EXPECT_FALSE(answer.ended());
  engine->RunAll();
  ExpectSame(prompt.answer(), Alone(MakeRequest(SomeIds(2000, 2), 1)));
}

TEST_P(RunLoopTest, PromptsTakeTurns) {
  const auto engine = Make(20, 2);
  const Submitted large = engine->Submit(MakeRequest(SomeIds(4000, 1), 1));
  const Submitted small = engine->Submit(MakeRequest(SomeIds(100, 2), 1));
  engine->RunAll();
  EXPECT_EQ(engine->ended().front(), small.job.get());
}

// A pool of a fifth of what all of them need.
TEST_P(RunLoopTest, TheYoungestYieldsAndNobodysAnswerChanges) {
  for (const int seats : {4, 8}) {
    SCOPED_TRACE(seats);
    const auto engine = Make(14, seats);
    std::vector<Submitted> all;
    for (int i = 0; i < 8; ++i) {
      Request request = MakeRequest(SomeIds(300 + 40 * i, i), 700);
      request.sampling.temperature = 1;
      request.sampling.presence_penalty = 0.5;
      request.sampling.seed = 7 + i;
      all.push_back(engine->Submit(request));
    }
    engine->RunAll();
    EXPECT_GT(engine->loop().counts().preemptions, 0u);
    EXPECT_EQ(all[0].result().preemptions, 0);
    for (const Submitted& one : all) {
      ExpectConserved(one);
      ExpectOneStream(one);
      ExpectSame(one.answer(), Alone(one.job->request));
      EXPECT_EQ(one.result().error, "");
    }
    engine->Check();
  }
}

// Steps of several tokens, their last rows not the answers': nothing else
// changes by them, nor by what happens to the requests in between.
TEST_P(RunLoopTest, DraftsChangeNoAnswer) {
  ScriptedDrafter drafter(/*wrong=*/5);
  std::vector<Answer> alone;
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request request = MakeRequest(SomeIds(300 + 40 * i, i), 700);
    request.sampling.temperature = 1;
    request.sampling.seed = 7 + i;
    alone.push_back(Alone(request));
    drafter.Know(request.prompt, alone.back().ids);
    requests.push_back(std::move(request));
  }
  const auto engine = Make(14, 4);
  engine->state().drafter = &drafter;
  std::vector<Submitted> all;
  for (const Request& request : requests) {
    all.push_back(engine->Submit(request));
  }
  const int launches = model_.launches();
  engine->RunAll();
  EXPECT_GT(engine->loop().counts().preemptions, 0u);
  if (grid()) {
    EXPECT_EQ(drafter.drafted, 0u);
  } else {
    EXPECT_GT(drafter.drafted, 0u);
    EXPECT_LT(model_.launches() - launches, 6 * 700);
  }
  for (int i = 0; i < 6; ++i) {
    ExpectOneStream(all[i]);
    ExpectSame(all[i].answer(), alone[i]);
  }
  engine->Check();
}

// A sequence that begins on rows alone has another's bytes in its sections
// until its first step: they are nobody's end.
TEST_P(RunLoopTest, RowsAloneOfferNoEnd) {
  const auto engine = Make(16, 2);
  const Ids shared = SomeIds(100, 1);
  (void)engine->Run(MakeRequest(Joined(shared, SomeIds(30, 2)), 3));
  const Request longer = MakeRequest(Joined(shared, SomeIds(60, 3)), 5);
  const Request equal = MakeRequest(shared, 5);
  const Submitted first = engine->Submit(longer);
  const Submitted second = engine->Submit(equal);  // admitted before any step
  engine->RunAll();
  ExpectSame(first.answer(), Alone(longer));
  ExpectSame(second.answer(), Alone(equal));
  ExpectSame(engine->Run(equal), Alone(equal));
  engine->Check();
}

// Its restart begins on the prompt's rows alone, where an anchor is wanted.
TEST_P(RunLoopTest, ARestartOnRowsAloneTakesNoAnchor) {
  LoopEngine engine(
      model_, backend_,
      LoopEngine::Size{.blocks = 7,
                       .seats = 2,
                       .max_rows = grid() ? 1024 : 512,
                       .kept = {.pin_bytes = 0, .park_bytes = 0}});
  const Submitted old = engine.Submit(MakeRequest(SomeIds(500, 1), 100));
  engine.RunUntil([&] { return old.sink->ids.size() == 2; });
  const Request request = MakeRequest(SomeIds(1024, 2), 30);
  const Submitted young = engine.Submit(request);
  engine.RunUntil([&] { return engine.loop().counts().preemptions == 1; });
  {
    // What it gets for its sections held something else.
    std::vector<SectionBuffers::Buffer> buffers(4);
    for (auto& buffer : buffers) {
      buffer = engine.state().section_buffers.Take();
      std::fill_n(buffer.get(), engine.state().anchor_slots.section_bytes(),
                  std::byte{0x5A});
    }
  }
  engine.RunAll();
  ASSERT_EQ(young.result().preemptions, 1);
  ExpectSame(young.answer(), Alone(request));
  ExpectSame(engine.Run(request), Alone(request));
  engine.Check();
}

// Where its thinking is closed and what has come of the words that close it is
// not forgotten either.
TEST_P(RunLoopTest, AThinkingBudgetOutlivesAPreemption) {
  const auto engine = Make(12, 2);
  const Submitted old = engine->Submit(MakeRequest(SomeIds(1000, 1), 1200));
  engine->RunUntil([&] { return old.sink->ids.size() == 2; });
  Request request = MakeRequest(SomeIds(1500, 2), 600);
  request.thinking = ThinkingLimit{.tokens = 100,
                                   .open = true,
                                   .open_tag = "<t>",
                                   .close_tag = "</t>",
                                   .words = SomeIds(200, 3)};
  const Submitted young = engine->Submit(request);
  std::size_t preempted_at = 0;
  engine->RunUntil([&] {
    if (preempted_at == 0 && engine->loop().counts().preemptions > 0) {
      preempted_at = young.sink->ids.size();
    }
    return engine->idle();
  });
  EXPECT_GT(preempted_at, 100u);  // among the words
  EXPECT_LT(preempted_at, 300u);
  for (int i = 0; i < 600; ++i) {
    EXPECT_EQ(young.sink->tokens[i].hidden, i >= 100 && i < 300) << i;
  }
  ExpectOneStream(young);
  ExpectSame(young.answer(), Alone(young.job->request));
  engine->Check();
}

TEST_P(RunLoopTest, WhatWasPreemptedGoesOnInItsOwnBlocks) {
  const auto engine = Make(12, 2);
  const Submitted old = engine->Submit(MakeRequest(SomeIds(1000, 1), 1200));
  engine->RunUntil([&] { return old.sink->ids.size() == 2; });
  // Would fit now, and no more when the older one has grown.
  const Submitted young = engine->Submit(MakeRequest(SomeIds(1500, 2), 600));
  engine->RunAll();
  EXPECT_EQ(old.result().preemptions, 0);
  EXPECT_GT(young.result().preemptions, 0);
  for (const Submitted& one : {old, young}) {
    ExpectConserved(one);
    ExpectOneStream(one);
    ExpectSame(one.answer(), Alone(one.job->request));
  }
  engine->Check();
}

TEST_P(RunLoopTest, APreemptedRequestCanBeCancelled) {
  const auto engine = Make(12, 2);
  const Submitted old = engine->Submit(MakeRequest(SomeIds(1000, 1), 1500));
  engine->RunUntil([&] { return old.sink->ids.size() == 2; });
  Request request = MakeRequest(SomeIds(1200, 2), 900);
  request.session_key = "s";
  const Submitted young = engine->Submit(request);
  engine->RunUntil(
      [&] { return engine->loop().counts().preemptions > 0 || young.ended(); });
  ASSERT_FALSE(young.ended());
  const int sent = static_cast<int>(young.sink->ids.size());
  engine->Cancel(young);
  engine->Round();
  ASSERT_TRUE(young.ended());
  EXPECT_EQ(young.result().reason, FinishReason::kCancelled);
  // Its session knows what was sent, all but the last of it forwarded.
  const auto records = engine->state().records->Find(
      RootPrefixKey(engine->state().options.fingerprint, ""), "s", false);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0]->ids, Joined(request.prompt, young.sink->ids));
  EXPECT_EQ(records[0]->end, 1200 + sent - 1);
  engine->RunAll();
  ExpectSame(old.answer(), Alone(old.job->request));
  engine->Check();
}

TEST_P(RunLoopTest, AHeldAnswerStandsStillUntilItIsCancelled) {
  const auto engine = Make(20, 2);
  Request held = MakeRequest(SomeIds(300, 1), 50);
  held.session_key = "h";
  held.forced = Ids{5, 6, 7};
  held.hold = true;
  const Submitted standing = engine->Submit(held);
  engine->RunUntil([&] { return standing.sink->ids.size() == 3; });
  engine->loop().Admit();
  EXPECT_FALSE(engine->loop().Step());
  // Others go on beside it.
  const Request other = MakeRequest(SomeIds(400, 2), 9);
  const Submitted beside = engine->Submit(other);
  engine->RunUntil([&] { return beside.ended(); });
  ExpectSame(beside.answer(), Alone(other));
  EXPECT_FALSE(standing.ended());
  EXPECT_EQ(standing.sink->ids.size(), 3u);
  engine->Cancel(standing);
  engine->RunAll();
  EXPECT_EQ(standing.result().reason, FinishReason::kCancelled);
  engine->Check();
  // All that was sent but the last token was forwarded, so all of it is there.
  Request next = MakeRequest(Joined(held.prompt, Ids{5, 6, 7, 8, 9}), 3);
  next.session_key = "h";
  const Answer answer = engine->Run(next);
  EXPECT_EQ(answer.result.cache.source, CacheSource::kEnd);
  EXPECT_EQ(answer.result.cache.resumed_at, 302);
}

TEST_P(RunLoopTest, AHeldAnswerThatIsPreemptedIsHeldAgain) {
  const auto engine = Make(8, 2);
  const Request old = MakeRequest(SomeIds(400, 2), 1200);
  const Submitted oldest = engine->Submit(old);
  engine->RunUntil([&] { return !oldest.sink->ids.empty(); });
  Request held = MakeRequest(SomeIds(700, 1), 50);
  held.forced = Ids{5, 6, 7};
  held.hold = true;
  const Submitted standing = engine->Submit(held);
  engine->RunUntil([&] { return oldest.ended(); });
  EXPECT_GT(engine->loop().counts().preemptions, 0u);
  engine->RunUntil([&] { return engine->loop().counts().running == 1; });
  EXPECT_EQ(standing.sink->ids.size(), 3u);
  engine->Cancel(standing);
  engine->RunAll();
  EXPECT_EQ(standing.result().reason, FinishReason::kCancelled);
  ExpectSame(oldest.answer(), Alone(old));
  engine->Check();
}

TEST_P(RunLoopTest, WhatThePoolCannotHoldFailsAlone) {
  const auto engine = Make(4, 2);
  const Submitted large = engine->Submit(MakeRequest(SomeIds(900, 1), 400));
  const Submitted small = engine->Submit(MakeRequest(SomeIds(100, 2), 5));
  engine->RunAll();
  // Ends at the context that the pool allows.
  EXPECT_EQ(large.result().reason, FinishReason::kLength);
  EXPECT_EQ(small.result().reason, FinishReason::kLength);
  engine->Check();
}

TEST_P(RunLoopTest, ABrokenAnswerLeavesTheOthersAlone) {
  const auto engine = Make(16, 2);
  const Submitted good = engine->Submit(MakeRequest(SomeIds(100, 1), 30));
  const Submitted bad = engine->Submit(MakeRequest(SomeIds(200, 2), 30));
  model_.broken_position = 210;
  engine->RunAll();
  model_.broken_position.reset();
  EXPECT_EQ(bad.result().reason, FinishReason::kError);
  EXPECT_EQ(good.result().reason, FinishReason::kLength);
  ExpectSame(good.answer(), Alone(good.job->request));
  engine->Check();
}

TEST_P(RunLoopTest, EachConversationKeepsItsSeat) {
  const auto engine = Make(24, 2);
  Ids a = SomeIds(1100, 1), b = SomeIds(1200, 2);
  for (int turn = 0; turn < 3; ++turn) {
    Request first = MakeRequest(a, 8), second = MakeRequest(b, 8);
    first.session_key = "a";
    second.session_key = "b";
    const Submitted one = engine->Submit(first);
    const Submitted two = engine->Submit(second);
    engine->RunAll();
    if (turn > 0) {
      EXPECT_EQ(one.result().cache.source, CacheSource::kEnd);
      EXPECT_EQ(two.result().cache.source, CacheSource::kEnd);
      EXPECT_EQ(one.result().cache.computed, 31);
    }
    a = Joined(Joined(a, one.sink->ids), SomeIds(30, 10 + turn));
    b = Joined(Joined(b, two.sink->ids), SomeIds(30, 20 + turn));
  }
  engine->Check();
}

// Its next turn resumes behind the last row that was forwarded.
TEST_P(RunLoopTest, EveryEndingLeavesAnEndAnchor) {
  enum class Ending { kLength, kStop, kStopString, kCancel, kDisconnect };
  for (const Ending ending :
       {Ending::kLength, Ending::kStop, Ending::kStopString, Ending::kCancel,
        Ending::kDisconnect}) {
    SCOPED_TRACE(static_cast<int>(ending));
    const auto engine = Make(24, 2);
    Request request = MakeRequest(SomeIds(1100, 1), 30);
    request.session_key = "s";
    if (ending == Ending::kStop) {
      request.forced = Ids{5, 6, 7, 8, testing::kFakeEos, 9};
      request.ignore_eos = false;
    }
    if (ending == Ending::kStopString) {
      request.forced = Ids{5, 6, 'b', 'y', 'e', 9};
      request.stop_strings = {"bye"};
    }
    const Submitted first = engine->Submit(request);
    if (ending == Ending::kDisconnect) first.sink->accepts = 4;
    if (ending == Ending::kCancel) {
      engine->RunUntil([&] { return first.sink->ids.size() == 4; });
      engine->Cancel(first);
    }
    engine->RunAll();
    const int rows = engine->state().Residents().front()->rows();
    EXPECT_GE(rows, 1100 + static_cast<int>(first.sink->ids.size()) - 1);
    Request next = MakeRequest(
        Joined(Joined(request.prompt, first.sink->ids), SomeIds(20, 3)), 2);
    next.session_key = "s";
    const Answer answer = engine->Run(next);
    EXPECT_EQ(answer.result.cache.source, CacheSource::kEnd);
    EXPECT_EQ(answer.result.cache.anchor, AnchorKind::kEnd);
    EXPECT_EQ(answer.result.cache.resumed_at, rows);
    engine->Check();
  }
}

// A new chat takes the head that any seat holds, and displaces nobody while a
// seat is empty.
TEST_P(RunLoopTest, ANewChatTakesTheHeadOfAnotherSeat) {
  const auto engine = Make(24, 2);
  const Ids head = SomeIds(1024, 1);
  engine->Run(MakeRequest(Joined(head, SomeIds(1300, 2)), 4));
  const Answer other =
      engine->Run(MakeRequest(Joined(head, SomeIds(300, 3)), 4));
  EXPECT_EQ(other.result.cache.source, CacheSource::kResident);
  EXPECT_EQ(other.result.cache.resumed_at, 1024);
  EXPECT_EQ(engine->state().Residents().size(), 2u);
  engine->Check();
}

TEST_P(RunLoopTest, BypassRunsBesideOthersAndLeavesNoTrace) {
  const auto engine = Make(16, 2);
  const Submitted kept = engine->Submit(MakeRequest(SomeIds(500, 1), 50));
  Request request = MakeRequest(SomeIds(600, 2), 20);
  request.cache_mode = CacheMode::kBypass;
  const Submitted bypass = engine->Submit(request);
  engine->RunAll();
  ExpectSame(bypass.answer(), Alone(MakeRequest(SomeIds(600, 2), 20)));
  EXPECT_EQ(engine->state().Residents().size(), 1u);
  ExpectSame(kept.answer(), Alone(kept.job->request));
  engine->Check();
}

INSTANTIATE_TEST_SUITE_P(Engines, RunLoopTest, EngineVariants(),
                         EngineVariantName);

class ChooseSeatTest : public ::testing::Test {
 protected:
  // A seat with a conversation of these ids.
  void Fill(int seat, const Ids& ids, std::uint64_t last_use) {
    seats_[seat].resident.emplace(&engine_.state().pool,
                                  BlockTable::Kind::kPooled, kRoot,
                                  engine_.state().section_buffers.Take());
    seats_[seat].resident->ids.assign(ids.begin(), ids.end());
    seats_[seat].last_use = last_use;
  }
  // The index of the seat for a prompt; -1: none.
  std::ptrdiff_t Choose(const Ids& ids, const std::string& key = "") {
    const std::vector<KeyId> prompt(ids.begin(), ids.end());
    Seat* const seat = ChooseSeat(seats_, kRoot, prompt, key);
    return seat == nullptr ? -1 : seat - seats_.data();
  }

  static constexpr PrefixKey kRoot{5};
  FakeModel model_;
  FakeBackend backend_;
  LoopEngine engine_{model_, backend_, {}};
  std::vector<Seat> seats_{3};
};

TEST_F(ChooseSeatTest, TheOneItGoesOnWith) {
  Fill(0, SomeIds(300, 1), 3);
  Fill(1, Joined(SomeIds(300, 1), SomeIds(100, 2)), 2);
  EXPECT_EQ(Choose(Joined(SomeIds(300, 1), SomeIds(100, 2))), 1);
  EXPECT_EQ(Choose(Joined(SomeIds(300, 1), SomeIds(100, 3))), 0);
}

TEST_F(ChooseSeatTest, ElseAnEmptyOneElseTheOldest) {
  Fill(0, SomeIds(300, 1), 3);
  Fill(1, SomeIds(300, 2), 2);
  EXPECT_EQ(Choose(SomeIds(100, 9)), 2);
  Fill(2, SomeIds(300, 3), 4);
  EXPECT_EQ(Choose(SomeIds(100, 9)), 1);
  seats_[1].taken = true;
  EXPECT_EQ(Choose(SomeIds(100, 9)), 0);
  for (Seat& seat : seats_) seat.taken = true;
  EXPECT_EQ(Choose(SomeIds(100, 9)), -1);
}

TEST_F(ChooseSeatTest, ASharedHeadIsNoReasonButTheSameSessionIs) {
  Fill(0, Joined(SomeIds(300, 1), SomeIds(700, 2)), 3);
  seats_[0].resident->session_key = "s";
  const Ids prompt = Joined(SomeIds(300, 1), SomeIds(700, 3));
  EXPECT_EQ(Choose(prompt), 1);
  EXPECT_EQ(Choose(prompt, "s"), 0);
}

}  // namespace
}  // namespace holdfast::engine::testing
