// The engine's own request code on the CUDA backend, emulated: what is resumed
// on a grid line equals a cold run byte by byte, in a device's memory too.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cache/lending.h"
#include "engine/cache/state_image.h"
#include "engine/cache/tiering.h"
#include "engine/fingerprint.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "engine/testing/exact_engine.h"
#include "engine/testing/fake_tiers.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_emulation/fake_runtime.h"

namespace holdfast::engine {
namespace {

using testing::Answer;
using testing::ExactEngine;
using testing::ExactVariant;
using testing::ExpectSame;
using testing::ExpectSameBytes;
using testing::FakeTiers;
using testing::Joined;
using testing::MakeRequest;
using testing::SomeIds;
using Ids = std::vector<std::int32_t>;

constexpr int kGrid = 256;
constexpr int kLent = 4;  // blocks that the cache service can read
constexpr ExactVariant kVariant = {.max_rows = kGrid, .grid_tokens = kGrid};

Request Of(std::string session, Ids prompt, int max_tokens = 2) {
  Request request = MakeRequest(std::move(prompt), max_tokens);
  request.session_key = std::move(session);
  return request;
}

class CudaEngineTest : public ::testing::Test {
 protected:
  CudaEngineTest() : path_(folder_.File("tiny.gguf")) {
    emulation::ResetFakeRuntime({});
    const auto options = *model::testing::TinyVariant("tiny-qwen35");
    EXPECT_TRUE(model::testing::WriteTinyGguf(options, path_).ok());
  }
  ExactEngine Make() {
    return ExactEngine(path_, kVariant, *kernels::MakeCudaBackend({}));
  }
  // Compares with an engine that never resumed anything.
  void ExpectExact(ExactEngine& warm, const Request& request, int position) {
    const Answer answer = warm.Run(request);
    EXPECT_EQ(answer.result.cache.resumed_at, position) << answer.result.error;
    ExactEngine cold = Make();
    ExpectSame(answer, cold.Run(request));
    ExpectSameBytes(warm, cold);
  }

  model::testing::TempFolder folder_;
  std::string path_;
};

TEST_F(CudaEngineTest, ResumedOnALineWithOthersInBetween) {
  ExactEngine engine = Make();
  EXPECT_FALSE(engine.backend->info().host_memory);
  const Ids prompt = SomeIds(300, 1, engine.vocab());
  const Answer first = engine.Run(Of("a", prompt, 3));
  EXPECT_EQ(first.ids.size(), 3u) << first.result.error;
  // Decoded rows are the session's alone.
  EXPECT_EQ(first.result.digests->taint, 300);
  Ids edited = prompt;
  edited[290] ^= 1;
  engine.Run(Of("b", SomeIds(280, 2, engine.vocab())));
  ExpectExact(engine, Of("a", edited), kGrid);
}

TEST_F(CudaEngineTest, AConversationGoesOnAtItsEnd) {
  ExactEngine engine = Make();
  const Ids prompt = SomeIds(270, 3, engine.vocab());
  const Answer first = engine.Run(Of("a", prompt, 4));
  ASSERT_EQ(first.ids.size(), 4u) << first.result.error;
  const Ids next =
      Joined(Joined(prompt, first.ids), SomeIds(9, 4, engine.vocab()));
  const Answer second = engine.Run(Of("a", next));
  EXPECT_EQ(second.result.cache.source, CacheSource::kEnd);
  EXPECT_EQ(second.result.cache.resumed_at, 273);
  EXPECT_EQ(second.result.digests->taint, 270);
  // Nobody else starts there.
  EXPECT_EQ(engine.Run(Of("b", next)).result.cache.resumed_at, kGrid);
}

// The cache service reads copies in host memory, and what it gives back goes
// to the device.
TEST_F(CudaEngineTest, ALineGoesThroughTheTiers) {
  struct Node {
    explicit Node(ExactEngine made) : engine(std::move(made)) {
      EngineState& state = engine.engine->state();
      const std::size_t bytes = state.pool.block_bytes();
      memory = AllocateAligned(kLent * bytes);
      auto lending = std::make_unique<Lending>(state.pool, *engine.backend,
                                               memory.get(), kLent);
      tiers = std::make_unique<FakeTiers>(lending->pool());
      tiers->image_bytes = StateImageBytes(state.model.layout());
      costs = *ParsePlannerCosts("prefill=100,store=100,disk=100,spill=100");
      state.tiering = std::make_unique<Tiering>(
          *tiers, *costs, reinterpret_cast<std::byte*>(leases.data()),
          std::move(lending));
    }
    ~Node() { engine.engine->state().tiering.reset(); }

    ExactEngine engine;
    AlignedBytes memory;
    std::unique_ptr<FakeTiers> tiers;
    std::unique_ptr<PlannerCosts> costs;
    std::vector<std::uint64_t> leases =
        std::vector<std::uint64_t>(kLeaseTableBytes / 8);
  };
  Node first(Make());
  first.tiers->admit = {kGrid};
  const Ids prompt = SomeIds(300, 5, first.engine.vocab());
  first.engine.Run(Of("a", prompt));
  ASSERT_EQ(first.tiers->entries.size(), 1u);
  Tiering& tiering = *first.engine.engine->state().tiering;
  tiering.leases.Collect({});
  EXPECT_EQ(tiering.lending->pool().counts().free, kLent);

  Node second(Make());
  second.tiers->entries = first.tiers->entries;
  ExpectExact(second.engine, Of("a", prompt), kGrid);
  EXPECT_EQ(second.tiers->restores, 1);
}

// A bias of nothing keeps the choice on the host.
TEST_F(CudaEngineTest, TokensChosenOnTheDeviceAreTheHosts) {
  ExactEngine engine = Make();
  const SamplingParams sampling[] = {
      {},
      {.temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .seed = 5},
      {.temperature = 1, .min_p = 0.02f, .seed = 6},
      {.temperature = 1, .seed = 7},
  };
  for (const SamplingParams& params : sampling) {
    Request request = Of("", SomeIds(20, 8, engine.vocab()), 6);
    request.ignore_eos = true;
    request.digest = false;  // nothing wants the logits
    request.sampling = params;
    const Answer device = engine.Run(request);
    EXPECT_GT(device.result.chosen_by_backend, 0) << device.result.error;
    request.sampling.logit_bias = {{0, 0.0f}};
    const Answer host = engine.Run(request);
    EXPECT_EQ(host.result.chosen_by_backend, 0);
    EXPECT_EQ(device.ids, host.ids);
    EXPECT_EQ(device.ids.size(), 6u);
  }
}

TEST_F(CudaEngineTest, SelfTestsAreTheSameTwice) {
  const auto digest = [] {
    const auto backend = *kernels::MakeCudaBackend({});
    const auto result = SelfTestKernels(*backend);
    EXPECT_TRUE(result.ok()) << result.status();
    return *result;
  };
  EXPECT_EQ(digest(), digest());
}

// Memory that a launch asks for and does not get, say: the device works on, and
// what was computed around it is nobody's.
TEST_F(CudaEngineTest, ARefusedCallFailsOneRequestAndLeavesNothing) {
  ExactEngine engine = Make();
  const Ids prompt = SomeIds(20, 7, engine.vocab());
  emulation::FailCall("cudaLaunchKernelEx", 5, cudaErrorMemoryAllocation);
  const Answer answer = engine.Run(Of("a", prompt));
  EXPECT_EQ(answer.result.reason, FinishReason::kError);
  EXPECT_NE(answer.result.error.find("out of memory"), std::string::npos)
      << answer.result.error;
  EXPECT_FALSE(engine.backend->lost());
  ExpectExact(engine, Of("a", prompt), 0);
}

TEST_F(CudaEngineTest, ADeviceThatFailedFailsTheRequestAndIsLost) {
  ExactEngine engine = Make();
  EXPECT_FALSE(engine.backend->lost());
  emulation::FailCall("cudaLaunchKernelEx", 5, cudaErrorIllegalAddress);
  const Answer answer = engine.Run(Of("a", SomeIds(20, 6, engine.vocab())));
  EXPECT_EQ(answer.result.reason, FinishReason::kError);
  EXPECT_NE(answer.result.error.find("illegal memory access"),
            std::string::npos)
      << answer.result.error;
  EXPECT_TRUE(engine.backend->lost());
}

}  // namespace
}  // namespace holdfast::engine
