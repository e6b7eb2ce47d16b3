// Requests on a grid backend: where they resume, what others may use, and that
// all but the end of a session's own answer gives what a cold run gives. The
// model's rows depend on the launch that computed them.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/scheduler/request_run.h"
#include "engine/testing/engine_variants.h"
#include "engine/testing/test_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine::testing {
namespace {

using ::testing::ElementsAre;

constexpr int kGrid = 1024;

Ids Edited(Ids ids, int at) {
  ids[at] = (ids[at] + 1) % 250;
  return ids;
}

Request Of(std::string session, Ids prompt, int max_tokens = 4) {
  Request request = MakeRequest(std::move(prompt), max_tokens);
  request.session_key = std::move(session);
  return request;
}

class GridRunTest : public ::testing::TestWithParam<FakeModel::Kind> {
 protected:
  GridRunTest() { model_.launch_matters = true; }

  std::unique_ptr<TestEngine> Make(int blocks) {
    return std::make_unique<TestEngine>(model_, backend_, blocks,
                                        FakeTokenizer(), /*max_rows=*/kGrid);
  }
  bool recurrent() const { return GetParam() == FakeModel::Kind::kRecurrent; }
  // Runs it warm and, leaving no trace, cold.
  Answer RunChecked(const Request& request) {
    const Answer warm = engine_.Run(request);
    ExpectSame(warm, engine_.Cold(request));
    return warm;
  }
  // At a line, by `grid` rows alone.
  void ExpectAtLine(const Request& request, int position) {
    const Answer warm = RunChecked(request);
    EXPECT_EQ(warm.result.cache.resumed_at, position);
    EXPECT_NE(warm.result.cache.source, CacheSource::kEnd);
  }
  int BlocksInIndex(const Ids& ids) {
    const std::vector<KeyId> keys(ids.begin(), ids.end());
    PrefixKey key = RootPrefixKey(engine_.state().options.fingerprint, "");
    int found = 0;
    for (std::size_t at = 0; at + kBlockTokens <= keys.size();
         at += kBlockTokens, ++found) {
      const auto block = std::span(keys).subspan(at, kBlockTokens);
      key = ChainPrefixKey(key, block);
      if (engine_.state().pool.Find(key, block) == kNoBlock) break;
    }
    return found;
  }
  std::vector<int> Anchors() {
    std::vector<int> positions;
    for (const AnchorRef& anchor : engine_.resident()->anchors) {
      positions.push_back(anchor->position);
    }
    return positions;
  }

  FakeModel model_{GetParam()};
  FakeBackend backend_{kernels::Exactness::kGrid};
  const std::unique_ptr<TestEngine> owned_ = Make(24);
  TestEngine& engine_ = *owned_;
};

TEST_P(GridRunTest, AStepIsAChunk) {
  const Answer answer = engine_.Run(Of("a", SomeIds(2500, 1)));
  EXPECT_THAT(answer.progress, ElementsAre(1024, 2048, 2500));
}

TEST_P(GridRunTest, ResumesAtTheLineBelowTheDifference) {
  const Ids base = SomeIds(2500, 1);
  for (int edit : {2499, 2300, 2048, 2047, 1024, 1023, 700}) {
    engine_.Run(Of("a", base));
    ExpectAtLine(Of("a", Edited(base, edit)), edit / kGrid * kGrid);
  }
}

TEST_P(GridRunTest, RowsWithoutALineAreAMissWithThatReason) {
  engine_.Run(Of("a", SomeIds(900, 1)));
  const Answer other = RunChecked(Of("a", Edited(SomeIds(900, 1), 800)));
  EXPECT_EQ(other.result.cache.source, CacheSource::kNone);
  EXPECT_EQ(other.result.cache.miss, MissReason::kNoAnchor);
}

TEST_P(GridRunTest, MessagesGetNoAnchors) {
  Request request = Of("a", SomeIds(2500, 1));
  request.messages = {0, 1500, 2048, 2300};
  engine_.Run(request);
  if (recurrent()) {
    EXPECT_THAT(Anchors(), ElementsAre(1024, 2048, 2500));
  } else {
    EXPECT_THAT(Anchors(), ElementsAre(2500));
  }
}

TEST_P(GridRunTest, AnExactRepeatForwardsNothing) {
  for (int length : {255, 256, 1024, 1300}) {
    const Request request = Of("a", SomeIds(length, length), 1);
    engine_.Run(request);
    engine_.Run(Of("a", request.prompt, 30));  // session rows behind it
    for (const char* session : {"a", "b", ""}) {
      const int before = model_.forwards();
      const Answer again = engine_.Run(Of(session, request.prompt, 1));
      EXPECT_EQ(model_.forwards(), before);
      EXPECT_EQ(again.result.cache.resumed_at, length);
      EXPECT_FALSE(again.result.digests->taint);
      ExpectSame(again, engine_.Cold(request));
    }
  }
}

TEST_P(GridRunTest, DecodeRowsAreTheSessions) {
  const Answer answer = engine_.Run(Of("a", SomeIds(1100, 1), 200));
  EXPECT_EQ(answer.result.digests->taint, 1100);
  const Sequence& resident = *engine_.resident();
  EXPECT_EQ(resident.taint, 1100);
  EXPECT_EQ(resident.ProvenanceAt(1100), Provenance::kGrid);
  EXPECT_EQ(resident.ProvenanceAt(1101), Provenance::kSession);
  for (int i = 0; i < resident.table.size(); ++i) {
    EXPECT_EQ(engine_.state().pool.provenance(resident.table.block(i)),
              i < 4 ? Provenance::kGrid : Provenance::kSession);
  }
}

TEST_P(GridRunTest, OnlyItsOwnSessionResumesAtTheEndOfAnAnswer) {
  for (int length : {700, 1024, 1500}) {
    const Ids prompt = SomeIds(length, length);
    const Answer first = engine_.Run(Of("a", prompt, 20));
    const Ids next = Joined(Joined(prompt, first.ids), SomeIds(30, 2));
    const Answer own = engine_.Run(Of("a", next));
    EXPECT_EQ(own.result.cache.source, CacheSource::kEnd);
    EXPECT_EQ(own.result.cache.resumed_at, length + 19);
    EXPECT_EQ(own.result.digests->taint, length);
    for (const char* session : {"b", ""}) {
      // Apart, for each leaves its own prompt's end to whoever repeats it.
      const auto salted = [session](Request request) {
        request.salt = std::string("of ") + session;
        return request;
      };
      engine_.Run(salted(Of("a", prompt, 20)));
      engine_.Run(salted(Of("a", next)));
      ExpectAtLine(salted(Of(session, next)), length / kGrid * kGrid);
    }
  }
}

// A retry of the second turn has not got the answer that the record ends with.
TEST_P(GridRunTest, SessionRowsServeOnlyWhatHasThemAll) {
  const Ids prompt = SomeIds(1500, 1);
  const Answer first = engine_.Run(Of("a", prompt, 20));
  const Ids next = Joined(Joined(prompt, first.ids), SomeIds(900, 2));
  engine_.Run(Of("a", next));
  ExpectAtLine(Of("a", next), 1024);
}

TEST_P(GridRunTest, NoRowOfASessionEntersTheIndex) {
  const Ids prompt = SomeIds(1500, 1);
  const Answer first = engine_.Run(Of("a", prompt, 700));  // across a line
  const Ids all = Joined(prompt, first.ids);
  EXPECT_EQ(BlocksInIndex(all), 4);
  ExpectAtLine(Of("b", all), 1024);
  // What b computed cold is everyone's.
  EXPECT_EQ(BlocksInIndex(all), 8);
  ExpectAtLine(Of("c", SomeIds(800, 3)), 0);
  ExpectAtLine(Of("d", Joined(all, {7})), 2048);
}

TEST_P(GridRunTest, PrefillOnTopOfSessionRowsIsTheSessions) {
  const Ids prompt = SomeIds(1500, 1);
  const Answer first = engine_.Run(Of("a", prompt, 2));
  const Ids next = Joined(Joined(prompt, first.ids), SomeIds(2000, 2));
  const Answer second = engine_.Run(Of("a", next));
  EXPECT_EQ(second.result.cache.resumed_at, 1501);
  EXPECT_EQ(second.result.digests->taint, 1500);
  EXPECT_THAT(second.progress, ElementsAre(2048, 3072, 3502));
  EXPECT_EQ(BlocksInIndex(next), 4);
  for (int position : Anchors()) EXPECT_LE(position, 1500);
  const Ids third = Joined(Joined(next, second.ids), SomeIds(40, 3));
  const Answer again = engine_.Run(Of("a", third));
  EXPECT_EQ(again.result.cache.source, CacheSource::kEnd);
  EXPECT_EQ(again.result.digests->taint, 1500);
  ExpectAtLine(Of("b", next), 1024);
}

// Nothing was decoded, and still: a cold run of a longer prompt does not launch
// these rows by themselves.
TEST_P(GridRunTest, APartOfAChunkIsNoPlaceForALongerPrompt) {
  const Ids prompt = SomeIds(1300, 1);
  const Ids longer = Joined(prompt, SomeIds(900, 2));
  engine_.Run(Of("a", prompt, 1));
  EXPECT_EQ(engine_.resident()->taint, kUntainted);
  EXPECT_EQ(BlocksInIndex(prompt), 4);
  ExpectAtLine(Of("b", longer), 1024);
  EXPECT_EQ(BlocksInIndex(longer), 8);  // whole now
  engine_.Run(Of("c", prompt, 1));
  const Answer own = engine_.Run(Of("c", Joined(prompt, SomeIds(900, 3))));
  EXPECT_EQ(own.result.cache.source, CacheSource::kEnd);
  EXPECT_EQ(own.result.digests->taint, 1300);
  EXPECT_EQ(BlocksInIndex(Joined(prompt, SomeIds(900, 3))), 5);
}

// Its own rows are gone, and those of the same ids in the index are others.
TEST_P(GridRunTest, APromptsEndDoesNotOutliveItsRows) {
  for (int length : {1280, 1400}) {  // whole blocks, and not
    const Ids prompt = SomeIds(length, length);
    engine_.Run(Of("a", prompt, 1));
    engine_.Run(Of("b", Joined(prompt, SomeIds(900, 2)), 1));
    ExpectAtLine(Of("a", prompt), 1024);
  }
}

TEST_P(GridRunTest, ACancelledPrefillIsGoneOnFromItsLastLine) {
  const Request request = Of("a", SomeIds(3000, 1));
  for (const char* session : {"a", "b"}) {
    engine_.Run(Of("c", SomeIds(300, 2)));
    Request cut = request;
    cut.salt = session;
    RecordingSink sink;
    const Answer cancelled =
        engine_.Run(cut, sink, [&] { return sink.progress.size() == 2; });
    ASSERT_EQ(cancelled.result.reason, FinishReason::kCancelled);
    cut.session_key = session;
    const Answer resumed = RunChecked(cut);
    EXPECT_EQ(resumed.result.cache.resumed_at, 2048);
    EXPECT_EQ(resumed.result.digests->taint, 3000);
  }
}

TEST_P(GridRunTest, BypassAndReadOnlyLeaveNoTrace) {
  const Ids prompt = SomeIds(1500, 1);
  const Answer first = engine_.Run(Of("a", prompt, 20));
  const Ids next = Joined(Joined(prompt, first.ids), SomeIds(600, 2));
  const std::string before = engine_.Describe();
  for (CacheMode mode : {CacheMode::kBypass, CacheMode::kReadOnly}) {
    for (const char* session : {"a", "b"}) {
      Request request = Of(session, next, 300);
      request.cache_mode = mode;
      const Answer answer = engine_.Run(request);
      EXPECT_EQ(engine_.Describe(), before);
      const bool end = mode == CacheMode::kReadOnly && *session == 'a';
      EXPECT_EQ(answer.result.cache.source == CacheSource::kEnd, end);
      if (!end) ExpectSame(answer, engine_.Cold(request));
    }
  }
}

// Runs up to `tokens` of its answer, gives its seat to `other`, goes on.
Answer RunPaused(TestEngine& engine, const Request& request, std::size_t tokens,
                 const Request& other) {
  RecordingSink sink;
  RequestRun run(engine.state(), request, sink, [] { return false; });
  EngineState& state = engine.state();
  const auto step = [&] {
    if (run.phase() == RequestRun::Phase::kRestoring) return run.RestoreStep();
    const Supply supply = run.Prepare();
    if (supply == Supply::kWait) return;
    ASSERT_EQ(supply, Supply::kHave);
    if (run.phase() == RequestRun::Phase::kPrefill) return run.PrefillStep();
    const model::SequenceRows row = run.DecodeRow();
    run.Decoded(ToAbslStatus(state.model.Forward({&row, 1})));
  };
  run.Start(engine.seat(), 0);
  while (sink.ids.size() < tokens) step();
  run.Pause();
  engine.Run(other);
  run.Start(engine.seat(), 0);
  while (run.phase() != RequestRun::Phase::kEnded) step();
  Answer answer{run.Finish(), sink.ids, sink.tokens, sink.progress};
  engine.CheckPool();
  engine.CheckAnchors();
  return answer;
}

TEST_P(GridRunTest, APausedAnswerOfASessionGoesOnFromItsOwnRows) {
  const Request first = Of("a", SomeIds(1500, 1), 20);
  const Answer turn = engine_.Run(first);
  const Request next =
      Of("a", Joined(Joined(first.prompt, turn.ids), SomeIds(1300, 2)), 12);
  const Answer alone = engine_.Run(next);
  EXPECT_EQ(alone.result.cache.source, CacheSource::kEnd);
  for (const std::size_t tokens : {1, 2, 7}) {
    const auto engine = Make(40);
    engine->Run(first);
    const Answer paused =
        RunPaused(*engine, next, tokens, Of("b", SomeIds(2900, 3)));
    EXPECT_EQ(paused.result.recomputed, 0);
    ExpectSame(paused, alone);
  }
}

// What a pause left is cut at once: it starts from the session's line again.
TEST_P(GridRunTest, APausedAnswerThatLostItsRowsKeepsTheTokensItSent) {
  const Request first = Of("a", SomeIds(1500, 1), 20);
  const Answer turn = engine_.Run(first);
  const Request next =
      Of("a", Joined(Joined(first.prompt, turn.ids), SomeIds(1300, 2)), 12);
  const Answer alone = engine_.Run(next);
  TestEngine engine(model_, backend_, 24, FakeTokenizer(), kGrid, 32,
                    {.park_bytes = 0});
  engine.Run(first);
  const Answer paused = RunPaused(engine, next, 7, Of("b", SomeIds(2900, 3)));
  EXPECT_GT(paused.result.recomputed, 0);
  ASSERT_EQ(paused.ids.size(), 12u);
  EXPECT_EQ(Ids(paused.ids.begin(), paused.ids.begin() + 7),
            Ids(alone.ids.begin(), alone.ids.begin() + 7));
}

// Any order of requests: what does not resume at its own session's end answers
// as a cold run.
TEST_P(GridRunTest, AnyOrderOfRequestsIsExact) {
  int ends = 0, lines = 0;
  for (unsigned seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    const auto engine = Make(14 + static_cast<int>(seed));
    Ids conversation = SomeIds(1000, 1);
    for (int turn = 0; turn < 30; ++turn) {
      if (random() % 4 == 0) {  // parts somewhere
        conversation.resize(1 + random() % conversation.size());
      }
      conversation =
          Joined(conversation, SomeIds(1 + random() % 600, random() % 5));
      if (conversation.size() > 3300) conversation.resize(900);
      Request request = Of(random() % 3 == 0 ? "b" : "a", conversation,
                           1 + static_cast<int>(random() % 60));
      if (random() % 4 == 0) request.cache_mode = CacheMode::kReadOnly;
      RecordingSink sink;
      const int cut = random() % 4 == 0 ? static_cast<int>(random() % 3) : -1;
      int steps = 0;
      const Answer warm =
          engine->Run(request, sink, [&] { return steps++ == cut; });
      if (warm.result.reason == FinishReason::kCancelled) continue;
      const auto& taint = warm.result.digests->taint;
      if (taint && *taint < warm.result.prompt_tokens) {
        ++ends;
        EXPECT_EQ(warm.result.cache.source, CacheSource::kEnd);
      } else {
        lines += warm.result.cache.resumed_at > 0;
        ExpectSame(warm, engine->Cold(request));
      }
      if (random() % 2 == 0) conversation = Joined(conversation, warm.ids);
      if (::testing::Test::HasFailure()) {
        FAIL() << "seed " << seed << " turn " << turn;
      }
    }
  }
  EXPECT_GT(ends, 10);
  EXPECT_GT(lines, 10);
}

INSTANTIATE_TEST_SUITE_P(Kinds, GridRunTest, ModelKinds(), ModelKindName);

}  // namespace
}  // namespace holdfast::engine::testing
