#include "engine/scheduler/request_run.h"

#include <random>
#include <string>
#include <vector>

#include "engine/testing/engine_variants.h"
#include "engine/testing/test_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine::testing {
namespace {

using ::testing::HasSubstr;

class RequestRunTest : public ::testing::Test {
 protected:
  FakeModel model_;
  FakeBackend backend_;
  TestEngine engine_{model_, backend_, 16};
};

TEST_F(RequestRunTest, AColdRequestComputesItsWholePrompt) {
  const Answer answer = engine_.Run(MakeRequest(SomeIds(300, 1), 5));
  EXPECT_EQ(answer.result.reason, FinishReason::kLength);
  EXPECT_EQ(answer.ids.size(), 5u);
  EXPECT_EQ(answer.result.output_tokens, 5);
  EXPECT_EQ(answer.result.cache.source, CacheSource::kNone);
  EXPECT_EQ(answer.result.cache.miss, MissReason::kCold);
  EXPECT_EQ(answer.result.cache.computed, 300);
  EXPECT_EQ(answer.progress.back(), 300);
  // The last token of an answer is not forwarded.
  EXPECT_EQ(model_.rows_forwarded(), 304);
  EXPECT_EQ(engine_.resident()->rows(), 304);
}

TEST_F(RequestRunTest, TheSamePromptAgainComputesNothing) {
  const Request request = MakeRequest(SomeIds(300, 1));
  const Answer cold = engine_.Run(request);
  const Answer warm = engine_.Run(request);
  ExpectSame(warm, cold);
  EXPECT_EQ(warm.result.cache.source, CacheSource::kResident);
  EXPECT_EQ(warm.result.cache.anchor, AnchorKind::kPromptEnd);
  EXPECT_EQ(warm.result.cache.resumed_at, 300);
  EXPECT_EQ(warm.result.cache.computed, 0);
  EXPECT_EQ(warm.result.cache.miss, MissReason::kNone);
}

TEST_F(RequestRunTest, ResumesAtAnyToken) {
  const auto base = SomeIds(600, 1);
  const Answer first = engine_.Run(MakeRequest(base));
  for (int shared : {1, 15, 16, 17, 255, 256, 257, 300, 511, 512, 599}) {
    engine_.Run(MakeRequest(base));  // the resident again
    auto prompt = base;
    prompt.resize(shared);
    prompt = Joined(prompt, std::vector<std::int32_t>{
                                (base[shared % 600] + 1) % 250, 3, 4});
    const Answer warm = engine_.Run(MakeRequest(prompt));
    EXPECT_EQ(warm.result.cache.resumed_at, shared);
    ExpectSame(warm, engine_.Cold(MakeRequest(prompt)));
  }
  ExpectSame(engine_.Run(MakeRequest(base)), first);
}

TEST_F(RequestRunTest, TheNextTurnResumesAtTheEndOfTheAnswer) {
  const auto prompt = SomeIds(250, 1);
  const Answer first = engine_.Run(MakeRequest(prompt, 20));
  const auto next = Joined(Joined(prompt, first.ids), SomeIds(30, 2));
  const Answer warm = engine_.Run(MakeRequest(next));
  EXPECT_EQ(warm.result.cache.resumed_at, 269);  // all rows there were
  EXPECT_EQ(warm.result.cache.source, CacheSource::kEnd);
  ExpectSame(warm, engine_.Cold(MakeRequest(next)));
}

TEST_F(RequestRunTest, AConversationThatLostItsSeatIsFound) {
  const auto a = SomeIds(700, 1), b = SomeIds(300, 2);
  const Answer first = engine_.Run(MakeRequest(a));
  engine_.Run(MakeRequest(b));
  const Answer again = engine_.Run(MakeRequest(a));
  EXPECT_EQ(again.result.cache.resumed_at, 700);
  EXPECT_EQ(again.result.cache.source, CacheSource::kParked);
  ExpectSame(again, first);
}

TEST_F(RequestRunTest, ASaltKeepsPrefixesApart) {
  Request request = MakeRequest(SomeIds(600, 1));
  request.salt = "a";
  const Answer first = engine_.Run(request);
  request.salt = "b";
  const Answer other = engine_.Run(request);
  EXPECT_EQ(other.result.cache.source, CacheSource::kNone);
  ExpectSame(other, first);
  request.salt = "a";
  EXPECT_EQ(engine_.Run(request).result.cache.resumed_at, 600);
}

TEST_F(RequestRunTest, WholeBlocksAreSharedNotCopied) {
  engine_.Run(MakeRequest(SomeIds(600, 1)));
  const BlockId head = engine_.resident()->table.block(0);
  const BlockId partial = engine_.resident()->table.block(2);
  engine_.Run(MakeRequest(SomeIds(580, 1)));
  EXPECT_EQ(engine_.resident()->table.block(0), head);
  EXPECT_NE(engine_.resident()->table.block(2), partial);
}

TEST_F(RequestRunTest, CancelInMidPrefillKeepsTheRows) {
  TestEngine engine(model_, backend_, 16, FakeTokenizer(), /*max_rows=*/48);
  const Request request = MakeRequest(SomeIds(900, 1));
  const Answer cold = engine.Cold(request);
  RecordingSink sink;
  bool cancelled = false;
  sink.after_progress = [&](int done) { cancelled = done >= 300; };
  const Answer cut = engine.Run(request, sink, [&] { return cancelled; });
  EXPECT_EQ(cut.result.reason, FinishReason::kCancelled);
  EXPECT_TRUE(cut.ids.empty());
  const int kept = cut.result.cache.computed;
  EXPECT_GE(kept, 300);
  EXPECT_LT(kept, 400);  // a step is at most 48 rows
  const Answer resumed = engine.Run(request);
  EXPECT_EQ(resumed.result.cache.resumed_at, kept);
  ExpectSame(resumed, cold);
}

TEST_F(RequestRunTest, CancelBeforeTheFirstStepChangesNothing) {
  engine_.Run(MakeRequest(SomeIds(300, 1)));
  RecordingSink sink;
  const Answer cut =
      engine_.Run(MakeRequest(SomeIds(400, 2)), sink, [] { return true; });
  EXPECT_EQ(cut.result.reason, FinishReason::kCancelled);
  EXPECT_EQ(engine_.Run(MakeRequest(SomeIds(300, 1))).result.cache.resumed_at,
            300);
}

TEST_F(RequestRunTest, CancelWhileDecodingKeepsTheRows) {
  RecordingSink sink;
  const Answer cut = engine_.Run(MakeRequest(SomeIds(300, 1), 1000), sink,
                                 [&] { return sink.ids.size() == 5; });
  EXPECT_EQ(cut.result.reason, FinishReason::kCancelled);
  EXPECT_EQ(cut.ids.size(), 5u);
  EXPECT_EQ(engine_.resident()->rows(), 305);
}

TEST_F(RequestRunTest, BypassLeavesNoTrace) {
  engine_.Run(MakeRequest(SomeIds(600, 1)));
  engine_.Run(MakeRequest(SomeIds(300, 2)));
  const std::string before = engine_.Describe();
  for (int tokens : {10, 300, 2000}) {  // the last one outgrows free blocks
    Request request = MakeRequest(SomeIds(tokens, tokens == 10 ? 3 : 1), 700);
    request.cache_mode = CacheMode::kBypass;
    const Answer answer = engine_.Run(request);
    EXPECT_EQ(answer.result.cache.computed, tokens);
    EXPECT_EQ(answer.result.cache.miss, MissReason::kBypass);
    EXPECT_EQ(answer.ids.size(), 700u);
    EXPECT_EQ(engine_.Describe(), before);
  }
}

TEST_F(RequestRunTest, ReadOnlyReadsAndLeavesNoTrace) {
  const Request base = MakeRequest(SomeIds(600, 1));
  const Answer first = engine_.Run(base);
  engine_.Run(MakeRequest(SomeIds(300, 2)));
  const std::string before = engine_.Describe();
  Request request = base;
  request.cache_mode = CacheMode::kReadOnly;
  const Answer answer = engine_.Run(request);
  EXPECT_EQ(answer.result.cache.resumed_at, 600);
  ExpectSame(answer, first);
  EXPECT_EQ(engine_.Describe(), before);
  request.prompt = SomeIds(290, 2);  // inside the resident's own block
  EXPECT_EQ(engine_.Run(request).result.cache.resumed_at, 289);
  EXPECT_EQ(engine_.Describe(), before);
}

TEST_F(RequestRunTest, ANonFiniteLogitFailsByNameAndPublishesNothing) {
  engine_.Run(MakeRequest(SomeIds(300, 1)));
  for (int broken : {599, 601}) {  // the prompt's last row; a decoded one
    model_.broken_position = broken;
    const Answer bad = engine_.Run(MakeRequest(SomeIds(600, 2)));
    EXPECT_EQ(bad.result.reason, FinishReason::kError);
    EXPECT_THAT(bad.result.error, HasSubstr("non-finite logit"));
    EXPECT_EQ(engine_.state().pool.counts().cached, 0);
    EXPECT_EQ(engine_.state().pool.counts().used, 2);
  }
  model_.broken_position.reset();
  EXPECT_EQ(engine_.Cold(MakeRequest(SomeIds(600, 2))).result.reason,
            FinishReason::kLength);
  // The conversation before it is still there.
  EXPECT_EQ(engine_.Run(MakeRequest(SomeIds(300, 1))).result.cache.resumed_at,
            300);
}

TEST_F(RequestRunTest, StopStringsEndAcrossTokens) {
  Request request = MakeRequest(SomeIds(20, 1), 50);
  request.forced = std::vector<std::int32_t>{'a', 'E', 'N', 'D', 'z', 'z'};
  request.stop_strings = {"zz", "END"};
  const Answer answer = engine_.Run(request);
  EXPECT_EQ(answer.result.reason, FinishReason::kStopString);
  EXPECT_EQ(answer.result.stop_string_index, 1);
  EXPECT_EQ(answer.ids, (std::vector<std::int32_t>{'a', 'E', 'N', 'D'}));
}

TEST_F(RequestRunTest, EndOfTurnStopsUnlessIgnored) {
  Request request = MakeRequest(SomeIds(20, 1), 50);
  request.forced = std::vector<std::int32_t>{'a', kFakeEos, 'b'};
  request.ignore_eos = false;
  const Answer stopped = engine_.Run(request);
  EXPECT_EQ(stopped.result.reason, FinishReason::kStop);
  EXPECT_EQ(stopped.ids, (std::vector<std::int32_t>{'a', kFakeEos}));
  request.ignore_eos = true;
  EXPECT_EQ(engine_.Run(request).ids, *request.forced);
}

TEST_F(RequestRunTest, ForcedIdsReplaceTheSampledOnes) {
  Request request = MakeRequest(SomeIds(20, 1), 50);
  request.forced = std::vector<std::int32_t>{5, 6, 7};
  const Answer answer = engine_.Run(request);
  EXPECT_EQ(answer.ids, *request.forced);
  EXPECT_EQ(answer.result.reason, FinishReason::kStop);
  EXPECT_EQ(engine_.resident()->rows(), 22);
  request.forced->clear();
  const Answer none = engine_.Run(request);
  EXPECT_TRUE(none.ids.empty());
  EXPECT_EQ(none.result.reason, FinishReason::kStop);
  request.forced = std::vector<std::int32_t>{5, 6, 7};
  request.max_tokens = 2;
  const Answer cut = engine_.Run(request);
  EXPECT_EQ(cut.ids.size(), 2u);
  EXPECT_EQ(cut.result.reason, FinishReason::kLength);
}

// "<t>" and "</t>", closed with "x</t>".
ThinkingLimit SomeThinking(int tokens) {
  return {.tokens = tokens,
          .open = true,
          .open_tag = "<t>",
          .close_tag = "</t>",
          .words = {'x', '<', '/', 't', '>'}};
}

TEST_F(RequestRunTest, ThinkingIsClosedAtItsBudget) {
  Request request = MakeRequest(SomeIds(20, 1), 12);
  request.thinking = SomeThinking(3);
  const Answer answer = engine_.Run(request);
  ASSERT_EQ(answer.ids.size(), 12u);
  // All the words in the third token's step.
  EXPECT_EQ(model_.launches(), 1 + 2 + 1 + 3);
  EXPECT_EQ((std::vector(answer.ids.begin() + 3, answer.ids.begin() + 8)),
            request.thinking->words);
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(answer.tokens[i].hidden, i >= 3 && i < 8) << i;
  }
  // The state is that of the same tokens from anywhere.
  Request cold = MakeRequest(SomeIds(20, 1), 12);
  cold.forced = answer.ids;
  const Answer same = engine_.Cold(cold);
  EXPECT_EQ(same.result.digests->end, answer.result.digests->end);
  // What the model says behind the words is what it says behind them anywhere.
  Request prompt = MakeRequest(
      Joined(SomeIds(20, 1), {answer.ids.begin(), answer.ids.begin() + 8}), 4);
  EXPECT_EQ(engine_.Cold(prompt).ids,
            (std::vector(answer.ids.begin() + 8, answer.ids.end())));
}

TEST_F(RequestRunTest, TheBudgetsWordsStandForForcedThinking) {
  Request request = MakeRequest(SomeIds(20, 1), 50);
  request.forced =
      std::vector<std::int32_t>{'a', 'b', 'c', '<', '/', 't', '>', 'y', 'z'};
  for (const int tokens : {0, 2}) {
    request.thinking = SomeThinking(tokens);
    const Answer answer = engine_.Run(request);
    std::vector<std::int32_t> expected(request.forced->begin(),
                                       request.forced->begin() + tokens);
    expected = Joined(expected, {'x', '<', '/', 't', '>', 'y', 'z'});
    EXPECT_EQ(answer.ids, expected);
    EXPECT_EQ(answer.result.reason, FinishReason::kStop);
  }
  request.thinking = SomeThinking(9);  // ends before
  EXPECT_EQ(engine_.Run(request).ids, *request.forced);
}

TEST_F(RequestRunTest, StopStringsAreNotLookedForInTheBudgetsWords) {
  Request request = MakeRequest(SomeIds(20, 1), 50);
  request.forced = std::vector<std::int32_t>{'a', 'b', 'x', 'z'};
  request.thinking = SomeThinking(1);
  request.thinking->words = {'z', '<', '/', 't', '>'};
  request.stop_strings = {"z"};
  // The forced thinking does not end: nothing is left behind the words.
  const Answer answer = engine_.Run(request);
  EXPECT_EQ(answer.ids,
            (std::vector<std::int32_t>{'a', 'z', '<', '/', 't', '>'}));
  EXPECT_EQ(answer.result.reason, FinishReason::kStop);
}

TEST_F(RequestRunTest, TheContextEndsAnAnswer) {
  const int context = engine_.state().options.max_context;
  const Answer answer = engine_.Run(MakeRequest(SomeIds(context - 3, 1), 1000));
  EXPECT_EQ(answer.result.reason, FinishReason::kLength);
  EXPECT_EQ(answer.ids.size(), 3u);
}

TEST_F(RequestRunTest, LogprobsComeWhenAskedFor) {
  Request request = MakeRequest(SomeIds(20, 1), 2);
  EXPECT_FALSE(engine_.Run(request).tokens[0].logprobs.has_value());
  request.top_logprobs = 3;
  const Answer answer = engine_.Run(request);
  ASSERT_TRUE(answer.tokens[0].logprobs.has_value());
  EXPECT_EQ(answer.tokens[0].logprobs->top.size(), 3u);
  EXPECT_EQ(answer.tokens[0].logprobs->top[0].id, answer.ids[0]);
}

TEST_F(RequestRunTest, AClientThatDoesNotReadIsCutOff) {
  RecordingSink sink;
  sink.accepts = 4;
  const Answer answer = engine_.Run(MakeRequest(SomeIds(20, 1), 100), sink);
  EXPECT_EQ(answer.result.reason, FinishReason::kError);
  EXPECT_THAT(answer.result.error, HasSubstr("too slowly"));
  EXPECT_EQ(answer.ids.size(), 4u);
}

// The digest of where a request resumed is that of the rows alone, so two that
// resumed at one position agree however the rows came there.
TEST_F(RequestRunTest, ResumedDigestsDependOnTheRowsAlone) {
  const auto prompt = SomeIds(600, 1);
  engine_.Run(MakeRequest(prompt));
  engine_.Run(MakeRequest(SomeIds(300, 2)));
  auto parts_at_512 = prompt;
  parts_at_512[512] ^= 1;
  const Answer parked = engine_.Run(MakeRequest(parts_at_512));
  ASSERT_EQ(parked.result.cache.resumed_at, 512);
  ASSERT_NE(parked.result.cache.source, CacheSource::kResident);
  parts_at_512[512] ^= 2;
  const Answer resident = engine_.Run(MakeRequest(parts_at_512));
  ASSERT_EQ(resident.result.cache.resumed_at, 512);
  ASSERT_EQ(resident.result.cache.source, CacheSource::kResident);
  EXPECT_EQ(parked.result.digests->resumed, resident.result.digests->resumed);
  EXPECT_FALSE(engine_.Cold(MakeRequest(prompt)).result.digests->resumed);
}

TEST(RequestRunTinyPoolTest, EvictionKeepsAnswersRight) {
  FakeModel model;
  FakeBackend backend;
  TestEngine engine(model, backend, 4);
  for (int round = 0; round < 3; ++round) {
    for (int seed = 0; seed < 4; ++seed) {
      const Request request = MakeRequest(SomeIds(700 + seed, seed), 40);
      ExpectSame(engine.Run(request), engine.Cold(request));
    }
  }
  EXPECT_GT(engine.state().pool.counts().evictions, 0u);
  const Request whole = MakeRequest(SomeIds(1020, 9), 4);
  ExpectSame(engine.Run(whole), engine.Cold(whole));
  // The copy of the last block finds no room: one block less is resumed.
  const Answer again = engine.Run(whole);
  EXPECT_EQ(again.result.cache.resumed_at, 768);
  ExpectSame(again, engine.Cold(whole));
}

TEST(RequestRunTinyPoolTest, AnEvictedPrefixIsAMissWithThatReason) {
  FakeModel model;
  FakeBackend backend;
  TestEngine engine(model, backend, 2);
  engine.Run(MakeRequest(SomeIds(400, 1)));
  engine.Run(MakeRequest(SomeIds(500, 2)));
  EXPECT_EQ(engine.Run(MakeRequest(SomeIds(400, 1))).result.cache.miss,
            MissReason::kEvicted);
}

// Any order of requests over shared and parting prompts answers as a cold run.
class RequestRunProperty : public ::testing::TestWithParam<FakeModel::Kind> {};

TEST_P(RequestRunProperty, AnyOrderOfRequestsIsExact) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    FakeModel model(GetParam());
    FakeBackend backend;
    TestEngine engine(model, backend, 6 + static_cast<int>(seed),
                      FakeTokenizer(), /*max_rows=*/512,
                      /*anchors=*/static_cast<int>(seed) * 2);
    std::vector<std::int32_t> conversation = SomeIds(100, 1);
    for (int turn = 0; turn < 40; ++turn) {
      if (random() % 3 == 0) {  // parts somewhere
        conversation.resize(1 + random() % conversation.size());
      }
      const auto more = SomeIds(1 + random() % 200, random() % 5);
      conversation = Joined(conversation, more);
      if (conversation.size() > 1200) conversation.resize(50);
      Request request =
          MakeRequest(conversation, 1 + static_cast<int>(random() % 60));
      const int gap = 20 + static_cast<int>(random() % 90);
      for (int at = gap; at < static_cast<int>(conversation.size());
           at += gap) {
        request.messages.push_back(at);
      }
      if (random() % 4 == 0) request.cache_mode = CacheMode::kReadOnly;
      if (random() % 4 == 0) request.salt = "other";
      RecordingSink sink;
      const int cut = random() % 4 == 0 ? static_cast<int>(random() % 6) : -1;
      int steps = 0;
      const Answer warm =
          engine.Run(request, sink, [&] { return steps++ == cut; });
      if (warm.result.reason == FinishReason::kCancelled) continue;
      ExpectSame(warm, engine.Cold(request));
      if (random() % 2 == 0) conversation = Joined(conversation, warm.ids);
      if (::testing::Test::HasFailure()) {
        FAIL() << "seed " << seed << " turn " << turn;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, RequestRunProperty, ModelKinds(),
                         ModelKindName);

}  // namespace
}  // namespace holdfast::engine::testing
