// What a grid backend promises, on one that really perturbs what it decodes:
// resumes on lines equal a cold run bit for bit, no decoded row is shared, and
// the end of an answer passes the greedy gate. Generated models, the engine's
// own request code.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/fingerprint.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "engine/testing/exact_engine.h"
#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

using testing::Answer;
using testing::ExactEngine;
using testing::ExactVariant;
using testing::ExpectSame;
using testing::ExpectSameBytes;
using testing::Joined;
using testing::MakeRequest;
using testing::RecordingSink;
using testing::SomeIds;
using Ids = std::vector<std::int32_t>;

constexpr ExactVariant kGridEngine = {.max_rows = 1024,
                                      .exactness = kernels::Exactness::kGrid};

Request Of(std::string session, Ids prompt, int max_tokens = 3) {
  Request request = MakeRequest(std::move(prompt), max_tokens);
  request.session_key = std::move(session);
  return request;
}

// By the name of the generated model.
class GridExactTest : public ::testing::TestWithParam<std::string> {
 protected:
  GridExactTest() : path_(folder_.File("tiny.gguf")) {
    const auto options = *model::testing::TinyVariant(GetParam());
    EXPECT_TRUE(model::testing::WriteTinyGguf(options, path_).ok());
  }
  ExactEngine Make(ExactVariant variant = kGridEngine) {
    return ExactEngine(path_, variant);
  }
  // Compares with an engine that never resumed anything.
  void ExpectExact(ExactEngine& warm, const Request& request, int position) {
    SCOPED_TRACE(::testing::Message() << "resumes at " << position);
    const Answer answer = warm.Run(request);
    EXPECT_EQ(answer.result.cache.resumed_at, position);
    ExactEngine cold = Make({.threads = 1,
                             .max_rows = 1024,
                             .exactness = kernels::Exactness::kGrid});
    ExpectSame(answer, cold.Run(request));
    ExpectSameBytes(warm, cold);
  }

  model::testing::TempFolder folder_;
  std::string path_;
};

TEST_P(GridExactTest, ResumedOnLinesWithOthersInBetween) {
  ExactEngine engine = Make();
  const int vocab = engine.vocab();
  const Ids prompt = SomeIds(2300, 1, vocab);
  engine.Run(Of("a", prompt, 40));
  ExpectExact(engine, Of("a", prompt), 2300);  // an exact repeat
  Ids edited = prompt;
  edited[2100] ^= 1;
  ExpectExact(engine, Of("a", edited), 2048);
  engine.Run(Of("b", SomeIds(600, 2, vocab), 20));
  ExpectExact(engine, Of("a", prompt), 2048);
  edited = prompt;
  edited[1500] ^= 1;
  ExpectExact(engine, Of("c", edited), 1024);
  engine.Run(Of("b", SomeIds(2900, 3, vocab), 20));
  EXPECT_GT(engine.engine->state().pool.counts().evictions, 0u);
}

TEST_P(GridExactTest, DecodedRowsDifferAndAreNeverShared) {
  ExactVariant wide = kGridEngine;
  wide.state_type = kernels::StateType::kF32;
  ExactEngine engine = Make(wide), prefilled = Make(wide);
  const Ids prompt = SomeIds(1100, 1, engine.vocab());
  const Answer first = engine.Run(Of("a", prompt, 1000));  // across a line
  const Ids all = Joined(prompt, first.ids);
  prefilled.Run(Of("a", Ids(all.begin(), all.end() - 1), 1));
  const Sequence& decoded = *engine.engine->resident();
  const Sequence& cold = *prefilled.engine->resident();
  ASSERT_EQ(decoded.ids, cold.ids);
  const std::size_t bytes = engine.engine->state().pool.block_bytes();
  for (int i = 0; i < decoded.rows() / kBlockTokens; ++i) {
    const bool same = std::memcmp(decoded.table.pointer(i),
                                  cold.table.pointer(i), bytes) == 0;
    EXPECT_EQ(same, i < 4) << "block " << i;
  }
  EXPECT_NE(
      0, std::memcmp(decoded.sections.get(), cold.sections.get(),
                     engine.engine->state().section_buffers.section_bytes()));

  const Answer other = engine.Run(Of("b", all));
  EXPECT_EQ(other.result.cache.resumed_at, 1024);
  ExactEngine reference = Make(wide);
  ExpectSame(other, reference.Run(Of("b", all)));
  ExpectSameBytes(engine, reference);
}

TEST_P(GridExactTest, ACancelledPrefillIsGoneOnFromItsLastLine) {
  ExactEngine engine = Make();
  const Request request = Of("a", SomeIds(2300, 1, engine.vocab()));
  RecordingSink sink;
  const Answer cut = engine.engine->Run(
      request, sink, [&] { return sink.progress.size() == 1; });
  ASSERT_EQ(cut.result.reason, FinishReason::kCancelled);
  ExpectExact(engine, request, 1024);
}

// From the end of an answer greedy decoding gives the tokens of the run that
// was not interrupted; those in front of them are prefilled, or were decoded.
TEST_P(GridExactTest, TheEndOfAnAnswerPassesTheGreedyGate) {
  constexpr int kGate = 256, kAnswer = 40, kPrompts = 4;
  int other_bits = 0;
  for (int seed = 1; seed <= kPrompts; ++seed) {
    ExactEngine whole = Make();
    const int length = 700 + 150 * seed;
    const Ids prompt = SomeIds(length, seed, whole.vocab());
    const Answer expected = whole.Run(Of("a", prompt, kAnswer + 30 + kGate));
    for (int more : {0, 1, 30}) {
      ExactEngine engine = Make();
      engine.Run(Of("a", prompt, kAnswer));
      const auto from = expected.ids.begin() + kAnswer + more;
      const Answer resumed = engine.Run(
          Of("a", Joined(prompt, Ids(expected.ids.begin(), from)), kGate));
      EXPECT_EQ(resumed.result.cache.source, CacheSource::kEnd);
      EXPECT_EQ(resumed.result.cache.resumed_at, length + kAnswer - 1);
      EXPECT_EQ(resumed.result.digests->taint, length);
      EXPECT_EQ(resumed.ids, Ids(from, from + kGate))
          << "prompt " << seed << ", " << more << " more";
      const Answer cold = engine.engine->Cold(
          Of("a", Joined(prompt, Ids(expected.ids.begin(), from)), 1));
      other_bits +=
          cold.result.digests->prompt_end != resumed.result.digests->prompt_end;
    }
  }
  EXPECT_EQ(other_bits, 3 * kPrompts);  // the gate was needed
}

TEST_P(GridExactTest, TheFingerprintHasTheMode) {
  const auto fingerprint = [](ExactEngine engine) {
    SelfTests tests;
    tests.model = *SelfTestModel(*engine.loaded.model, *engine.backend);
    kernels::BackendInfo info = engine.backend->info();
    const auto with_mode = *ComputeFingerprint(
        engine.loaded.files, *engine.loaded.model, info, tests);
    return std::pair(with_mode, tests.model);
  };
  const auto grid = fingerprint(Make());
  const auto invariant = fingerprint(Make({.max_rows = 1024}));
  EXPECT_NE(grid.first, invariant.first);
  EXPECT_NE(grid.second, invariant.second);  // the self-test shows it too
}

INSTANTIATE_TEST_SUITE_P(Models, GridExactTest,
                         ::testing::Values("tiny-llama", "tiny-qwen35"),
                         [](const auto& info) {
                           return info.param == "tiny-llama" ? "Llama"
                                                             : "Hybrid";
                         });

}  // namespace
}  // namespace holdfast::engine
