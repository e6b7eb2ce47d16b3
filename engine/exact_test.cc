// A resumed request computes what a cold one computes, bit for bit: a generated
// Llama model on the host backend, run through the engine's own request code.
#include <memory>
#include <string>
#include <vector>

#include "engine/fingerprint.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/testing/exact_engine.h"
#include "engine/testing/test_engine.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"

namespace holdfast::engine {
namespace {

using testing::Answer;
using testing::ExpectSame;
using testing::Joined;
using testing::MakeRequest;
using testing::RecordingSink;
using testing::SomeIds;

using Engine = testing::ExactEngine;
using Variant = testing::ExactVariant;
using testing::ExpectSameBytes;

class ExactTest : public ::testing::Test {
 protected:
  ExactTest() : path_(folder_.File("tiny.gguf")) {
    EXPECT_TRUE(model::testing::WriteTinyGguf(
                    {.type = kernels::WeightType::kQ4_1}, path_)
                    .ok());
  }
  Engine Make(const Variant& variant = {}) { return Engine(path_, variant); }

  model::testing::TempFolder folder_;
  std::string path_;
};

TEST_F(ExactTest, AnySplitAndThreadCount) {
  Engine whole = Make();
  const Request request = MakeRequest(SomeIds(900, 1, whole.vocab()), 24);
  const Answer expected = whole.Run(request);
  for (const Variant& variant :
       {Variant{.threads = 1}, Variant{.max_rows = 1}, Variant{.max_rows = 48},
        Variant{.threads = 1, .max_rows = 16}}) {
    Engine other = Make(variant);
    ExpectSame(other.Run(request), expected);
    ExpectSameBytes(other, whole);
  }
}

TEST_F(ExactTest, ResumedAfterOthersDirtiedThePool) {
  Engine used = Make(), fresh = Make({.threads = 1});
  const int vocab = used.vocab();
  const Request request = MakeRequest(SomeIds(700, 1, vocab), 8);
  used.Run(request);
  for (int seed = 2; seed < 9; ++seed) {  // takes every block at least once
    used.Run(MakeRequest(SomeIds(700 + seed, seed, vocab), 8));
    if (seed % 3 == 0) used.Run(request);
  }
  const Answer warm = used.Run(request);
  EXPECT_EQ(warm.result.cache.resumed_at, 700);
  EXPECT_GT(used.engine->state().pool.counts().evictions, 0u);
  ExpectSame(warm, fresh.Run(request));
  ExpectSameBytes(used, fresh);
}

// The answer's rows were made one at a time, the same tokens in a prompt are
// prefilled together.
TEST_F(ExactTest, TheNextTurnOnDecodedRows) {
  Engine warm = Make(), cold = Make();
  const auto prompt = SomeIds(300, 1, warm.vocab());
  const Answer first = warm.Run(MakeRequest(prompt, 100));
  const Request next = MakeRequest(
      Joined(Joined(prompt, first.ids), SomeIds(40, 2, warm.vocab())), 16);
  const Answer resumed = warm.Run(next);
  EXPECT_EQ(resumed.result.cache.resumed_at, 399);
  ExpectSame(resumed, cold.Run(next));
  ExpectSameBytes(warm, cold);
}

TEST_F(ExactTest, ResumedAtAnyTokenOfAnyGranule) {
  Engine warm = Make(), cold = Make();
  const auto base = SomeIds(300, 1, warm.vocab());
  for (int shared : {1, 17, 250, 256, 271}) {
    warm.Run(MakeRequest(base, 4));
    auto prompt = base;
    prompt[shared] = (prompt[shared] + 1) % warm.vocab();
    const Answer resumed = warm.Run(MakeRequest(prompt, 4));
    EXPECT_EQ(resumed.result.cache.resumed_at, shared);
    ExpectSame(resumed, cold.Run(MakeRequest(prompt, 4)));
    ExpectSameBytes(warm, cold);
  }
}

TEST_F(ExactTest, ACancelledPrefillIsGoneOnFrom) {
  Engine cut = Make({.max_rows = 32}), cold = Make();
  const Request request = MakeRequest(SomeIds(500, 1, cut.vocab()), 8);
  RecordingSink sink;
  const Answer cancelled = cut.engine->Run(request, sink, [&] {
    return !sink.progress.empty() && sink.progress.back() > 150;
  });
  ASSERT_EQ(cancelled.result.reason, FinishReason::kCancelled);
  const Answer resumed = cut.Run(request);
  EXPECT_EQ(resumed.result.cache.resumed_at, cancelled.result.cache.computed);
  EXPECT_GT(resumed.result.cache.resumed_at, 150);
  ExpectSame(resumed, cold.Run(request));
  ExpectSameBytes(cut, cold);
}

TEST_F(ExactTest, SampledAnswersAreExactToo) {
  Engine warm = Make(), cold = Make({.threads = 1, .max_rows = 16});
  Request request = MakeRequest(SomeIds(400, 1, warm.vocab()), 60);
  request.sampling = {.temperature = 1.2f,
                      .top_k = 200,
                      .top_p = 0.95f,
                      .min_p = 0.001f,
                      .seed = 11,
                      .repetition_penalty = 1.1f};
  request.top_logprobs = 5;
  warm.Run(request);
  const Answer again = warm.Run(request);
  const Answer expected = cold.Run(request);
  ExpectSame(again, expected);
  for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
    EXPECT_EQ(again.tokens[i].logprobs->chosen,
              expected.tokens[i].logprobs->chosen);
  }
}

TEST_F(ExactTest, TheFingerprintSaysWhatBytesDependOn) {
  SelfTests tests;
  const auto fingerprint = [&tests](Engine& engine) {
    const auto model = SelfTestModel(*engine.loaded.model, *engine.backend);
    tests.model = *model;
    return *ComputeFingerprint(engine.loaded.files, *engine.loaded.model,
                               engine.backend->info(), tests);
  };
  Engine two = Make(), one = Make({.threads = 1, .max_rows = 48});
  EXPECT_EQ(fingerprint(two), fingerprint(one));
  Engine wide = Make({.state_type = kernels::StateType::kF32});
  EXPECT_NE(fingerprint(two), fingerprint(wide));
  const Sha256Digest before = fingerprint(two);
  tests.kernels = *SelfTestKernels(**kernels::MakeHostBackend({.threads = 2}));
  EXPECT_NE(fingerprint(two), before);
  ASSERT_TRUE(model::testing::WriteTinyGguf(
                  {.type = kernels::WeightType::kQ4_1, .seed = 2}, path_)
                  .ok());
  Engine other = Make();
  EXPECT_NE(fingerprint(two), fingerprint(other));
}

}  // namespace
}  // namespace holdfast::engine
