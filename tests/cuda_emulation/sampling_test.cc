// The device's choice of a token against the engine's sampler: the same ids,
// over random logits and parameters.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/sampling/sampler.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_emulation/fake_runtime.h"

namespace holdfast::engine {
namespace {

using kernels::ChosenToken;

class Device {
 public:
  explicit Device(int vocab) {
    emulation::ResetFakeRuntime({});
    backend_ = *kernels::MakeCudaBackend({});
    kernels::Limits limits;
    limits.max_rows = 1;
    limits.max_vocab = vocab;
    EXPECT_TRUE(backend_->Prepare(limits).ok());
    logits_ = *backend_->Allocate(vocab * sizeof(float));
  }

  ChosenToken Choose(const std::vector<float>& logits,
                     const kernels::TokenChoice& choice) {
    EXPECT_TRUE(backend_
                    ->Write(logits.data(), logits.size() * sizeof(float),
                            logits_->data())
                    .ok());
    ChosenToken chosen;
    backend_->ChooseToken(logits_->floats(), static_cast<int>(logits.size()),
                          choice, &chosen);
    EXPECT_TRUE(backend_->Synchronize().ok());
    return chosen;
  }

 private:
  std::unique_ptr<kernels::CudaBackend> backend_;
  std::unique_ptr<kernels::Buffer> logits_;
};

// Steep enough that draws end among the best 256 now and then; some of few
// different values, so that ties are everywhere.
std::vector<float> RandomLogits(std::mt19937& random, int vocab) {
  std::normal_distribution<float> normal(
      0, std::uniform_real_distribution<float>(0.1f, 8)(random));
  const bool coarse = random() % 2 == 0;
  std::vector<float> logits(vocab);
  for (float& logit : logits) {
    logit = normal(random);
    if (coarse) logit = std::round(logit);  // -0 among them
  }
  return logits;
}

SamplingParams RandomParams(std::mt19937& random) {
  const auto pick = [&](auto... choices) {
    const float all[] = {static_cast<float>(choices)...};
    return all[random() % sizeof...(choices)];
  };
  return {.temperature = pick(0, 0.3, 0.7, 1, 1, 2.5),
          .top_k = static_cast<int>(pick(0, 0, 1, 20, 64, 256, 300, 100000)),
          .top_p = pick(1, 1, 0.95, 0.8, 0.1),
          .min_p = pick(0, 0, 0.05, 0.5, 1),
          .seed = random()};
}

TEST(DeviceSamplingTest, ChoosesTheSamplersTokens) {
  std::mt19937 random(20);
  int chosen_on_device = 0;
  int undecided = 0;
  for (const int vocab : {1, 2, 33, 2048, 2049, 6000}) {
    Device device(vocab);
    Sampler sampler(vocab);
    for (int round = 0; round < 60; ++round) {
      const std::vector<float> logits = RandomLogits(random, vocab);
      const SamplingParams params = RandomParams(random);
      const std::vector<std::int32_t> output(round % 7, 0);
      const auto choice = ChoiceFromLogits(params, output.size());
      ASSERT_TRUE(choice.has_value());
      const ChosenToken chosen = device.Choose(logits, *choice);
      if (chosen.outcome == ChosenToken::Outcome::kUndecided) {
        EXPECT_GT(vocab, 256);
        ++undecided;
        continue;
      }
      ASSERT_EQ(chosen.outcome, ChosenToken::Outcome::kChosen);
      ASSERT_EQ(chosen.id, sampler.Sample(logits, {}, output, params))
          << "vocabulary " << vocab << " round " << round << " temperature "
          << params.temperature << " top_k " << params.top_k << " top_p "
          << params.top_p << " min_p " << params.min_p;
      ++chosen_on_device;
    }
  }
  EXPECT_GT(chosen_on_device, 250);
  EXPECT_GT(undecided, 10);
}

TEST(DeviceSamplingTest, ExtremeLogits) {
  const float most = std::numeric_limits<float>::max();
  Device device(3);
  const auto id = [&](std::vector<float> logits, SamplingParams params) {
    const ChosenToken chosen =
        device.Choose(logits, *ChoiceFromLogits(params, 0));
    EXPECT_EQ(chosen.outcome, ChosenToken::Outcome::kChosen);
    EXPECT_EQ(chosen.id, Sampler(3).Sample(logits, {}, {}, params));
    return chosen.id;
  };
  EXPECT_EQ(id({-most, most, 0}, {.temperature = 1}), 1);
  EXPECT_EQ(id({-most, -most, -most}, {}), 0);
  EXPECT_EQ(id({-0.0f, 0.0f, -1}, {}), 0);  // equal
  EXPECT_EQ(id({0, 1, 0}, {.temperature = 1e-6f}), 1);
}

TEST(DeviceSamplingTest, ALogitThatIsNotFiniteIsSeen) {
  Device device(4096);
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {inf, -inf, std::nanf("")}) {
    for (const int at : {0, 2047, 2048, 4095}) {
      std::vector<float> logits(4096, 1.0f);
      logits[at] = bad;
      for (const float temperature : {0.0f, 1.0f}) {
        EXPECT_EQ(device.Choose(logits, {.temperature = temperature}).outcome,
                  ChosenToken::Outcome::kNotFinite)
            << bad << " at " << at;
      }
    }
  }
}

TEST(DeviceSamplingTest, WhatTheHostHasToChoose) {
  EXPECT_TRUE(ChoiceFromLogits({.temperature = 1, .top_k = 5}, 0));
  EXPECT_FALSE(ChoiceFromLogits({.repetition_penalty = 1.1f}, 0));
  EXPECT_FALSE(ChoiceFromLogits({.presence_penalty = 1}, 0));
  EXPECT_FALSE(ChoiceFromLogits({.frequency_penalty = 1}, 0));
  EXPECT_FALSE(ChoiceFromLogits({.logit_bias = {{0, 1}}}, 0));
}

}  // namespace
}  // namespace holdfast::engine
