// Seats on the CUDA backend, emulated: an answer is the same alone and beside
// others, preempted ones among them: tokens, the logits behind the prompt and
// the whole state behind the last row (as digests).
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/loader.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "engine/testing/loop_engine.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_emulation/fake_runtime.h"

namespace holdfast::engine {
namespace {

using testing::Answer;
using testing::ExpectSame;
using testing::Joined;
using testing::LoopEngine;
using testing::MakeRequest;
using testing::SomeIds;
using testing::Submitted;

constexpr int kGrid = 256;
constexpr int kRequests = 4;

struct Engine {
  Engine(const std::string& path, const LoopEngine::Size& size)
      : backend(*kernels::MakeCudaBackend({})) {
    loaded = *model::LoadModel(path, *backend,
                               {.state_type = kernels::StateType::kBF16,
                                .max_rows = kGrid,
                                .max_context = 1024,
                                .grid_tokens = kGrid});
    loop = std::make_unique<LoopEngine>(*loaded.model, *backend, size,
                                        loaded.tokenizer);
  }
  int vocab() const { return loaded.model->info().vocab_size; }

  std::unique_ptr<kernels::CudaBackend> backend;
  model::LoadedModel loaded;
  std::unique_ptr<LoopEngine> loop;
};

class CudaLoadTest : public ::testing::Test {
 protected:
  CudaLoadTest() : path_(folder_.File("tiny.gguf")) {
    emulation::ResetFakeRuntime({});
    const auto options = *model::testing::TinyVariant("tiny-qwen35");
    EXPECT_TRUE(model::testing::WriteTinyGguf(options, path_).ok());
  }
  // Two that fill a chunk and begin with it; two whose answers need a second
  // block. Both ways of choosing tokens.
  static Request Nth(int n, int vocab) {
    auto prompt = n % 2 == 0 ? SomeIds(kGrid - 5, n, vocab)
                             : Joined(SomeIds(kGrid, 77, vocab),
                                      SomeIds(9 * n, n, vocab));
    Request request = MakeRequest(std::move(prompt), 8 + n);
    request.sampling.temperature = n == 0 ? 0 : 0.8f;
    request.sampling.top_k = n == 1 ? 10 : 0;
    request.sampling.presence_penalty = n == 3 ? 0.5f : 0;
    request.sampling.seed = 100 + n;
    request.session_key = std::to_string(n);
    return request;
  }
  std::vector<Answer> Alone() {
    Engine engine(path_, {.blocks = 8, .seats = 1, .max_rows = kGrid});
    std::vector<Answer> alone;
    for (int n = 0; n < kRequests; ++n) {
      Request request = Nth(n, engine.vocab());
      request.salt = std::to_string(n);  // resumes nowhere
      alone.push_back(engine.loop->Run(request));
      EXPECT_EQ(alone.back().result.cache.resumed_at, 0);
      EXPECT_EQ(alone.back().ids.size(), 8u + n) << alone.back().result.error;
    }
    return alone;
  }

  model::testing::TempFolder folder_;
  std::string path_;
};

TEST_F(CudaLoadTest, AnAnswerDoesNotDependOnTheLoad) {
  const std::vector<Answer> alone = Alone();
  for (const int blocks : {8, 4}) {  // 4: not all have room
    SCOPED_TRACE(blocks);
    Engine engine(path_, {.blocks = blocks, .seats = 3, .max_rows = kGrid});
    std::vector<Submitted> all;
    for (int n = 0; n < kRequests; ++n) {
      all.push_back(engine.loop->Submit(Nth(n, engine.vocab())));
    }
    engine.loop->RunAll();
    for (int n = 0; n < kRequests; ++n) {
      SCOPED_TRACE(n);
      ExpectSame(all[n].answer(), alone[n]);
    }
    EXPECT_EQ(engine.loop->loop().counts().preemptions > 0, blocks == 4);
    engine.loop->Check();
  }
}

}  // namespace
}  // namespace holdfast::engine
