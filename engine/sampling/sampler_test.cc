#include "engine/sampling/sampler.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/sampling/logprobs.h"
#include "engine/sampling/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/sampling/exact_exp.h"

namespace holdfast::engine {
namespace {

using kernels::ExactExp;
using Ids = std::vector<std::int32_t>;

std::int32_t SampleOnce(const std::vector<float>& logits,
                        const SamplingParams& params, const Ids& prompt = {},
                        const Ids& output = {}) {
  return Sampler(static_cast<int>(logits.size()))
      .Sample(logits, prompt, output, params);
}

// How often each id is drawn over the outputs 0 to draws - 1.
std::vector<double> Frequencies(const std::vector<float>& logits,
                                SamplingParams params, int draws = 20000) {
  Sampler sampler(static_cast<int>(logits.size()));
  std::vector<double> counts(logits.size());
  for (int i = 0; i < draws; ++i) {
    params.seed = static_cast<std::uint64_t>(i);
    ++counts[sampler.Sample(logits, {}, {}, params)];
  }
  for (double& count : counts) count /= draws;
  return counts;
}

TEST(ExactMathTest, AgreesWithTheLibrary) {
  for (double x = -700; x <= 0; x += 0.37) {
    EXPECT_NEAR(ExactExp(x) / std::exp(x), 1, 1e-15) << x;
  }
  EXPECT_EQ(ExactExp(0), 1);
  EXPECT_EQ(ExactExp(-1e9), 0);
}

// Bits, not nearness: these must be equal on every machine and build.
TEST(ExactMathTest, GoldenBits) {
  EXPECT_EQ(ExactExp(-1), 0x1.78b56362cef38p-2);
  EXPECT_EQ(ExactExp(-20.25), 0x1.b93de1e27ca3bp-30);
}

// Known answers of the generator's authors.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c,
                                          0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       {0xa4093822, 0x299f31d0}),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420,
                                          0x24126ea1}));
}

TEST(PhiloxTest, UniformCoversTheUnitInterval) {
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = UniformAt(42, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.01);
  EXPECT_NE(UniformAt(1, 0), UniformAt(2, 0));
  EXPECT_NE(UniformAt(1, 0), UniformAt(1, 1));
}

TEST(SamplerTest, GreedyTakesTheLowerOfEquals) {
  EXPECT_EQ(SampleOnce({1, 3, 3, 2}, {}), 1);
}

TEST(SamplerTest, IsAFunctionOfItsInputs) {
  std::vector<float> logits(1000);
  for (int i = 0; i < 1000; ++i) logits[i] = std::sin(i * 12.9898f) * 4;
  SamplingParams params{.temperature = 0.9f,
                        .top_k = 50,
                        .top_p = 0.9f,
                        .min_p = 0.01f,
                        .seed = 7};
  Sampler used(1000);
  for (int i = 0; i < 50; ++i) {
    params.seed = i;
    const Ids output(i % 5, 3);
    const auto once = used.Sample(logits, {}, output, params);
    EXPECT_EQ(once, SampleOnce(logits, params, {}, output));
  }
}

TEST(SamplerTest, TemperatureGivesTheSoftmax) {
  const std::vector<float> logits = {0, 1, 2};
  for (float temperature : {1.0f, 0.5f}) {
    const auto seen = Frequencies(logits, {.temperature = temperature});
    double sum = 0;
    for (float logit : logits) sum += std::exp(logit / temperature);
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(seen[i], std::exp(logits[i] / temperature) / sum, 0.012);
    }
  }
}

TEST(SamplerTest, TopKKeepsTheBestOnly) {
  const auto seen =
      Frequencies({1, 1, 1, 0, 1}, {.temperature = 1, .top_k = 2});
  EXPECT_NEAR(seen[0], 0.5, 0.015);  // of equals the lower ids
  EXPECT_NEAR(seen[1], 0.5, 0.015);
  EXPECT_EQ(seen[2] + seen[3] + seen[4], 0);
}

TEST(SamplerTest, TopPKeepsTheSmallestSetThatReachesIt) {
  // 0.5, 0.25, 0.125, 0.125
  const float l2 = std::log(2.0f);
  const std::vector<float> logits = {3 * l2, 2 * l2, l2, l2};
  const auto two = Frequencies(logits, {.temperature = 1, .top_p = 0.7f});
  EXPECT_NEAR(two[0], 2.0 / 3, 0.015);
  EXPECT_NEAR(two[1], 1.0 / 3, 0.015);
  EXPECT_EQ(two[2] + two[3], 0);
  const auto one = Frequencies(logits, {.temperature = 1, .top_p = 0.4f}, 500);
  EXPECT_EQ(one[0], 1);
}

TEST(SamplerTest, TopPWorksOnWhatTopKLeft) {
  // Of 0.4, 0.3, 0.3 top_k 2 leaves 4/7 and 3/7: top_p 0.5 then keeps one.
  const std::vector<float> logits = {std::log(4.0f), std::log(3.0f),
                                     std::log(3.0f)};
  const auto seen =
      Frequencies(logits, {.temperature = 1, .top_k = 2, .top_p = 0.5f}, 500);
  EXPECT_EQ(seen[0], 1);
}

TEST(SamplerTest, MinPDropsWhatIsTooUnlikely) {
  const float l2 = std::log(2.0f);
  const std::vector<float> logits = {3 * l2, 2 * l2, l2};  // 1, 1/2, 1/4
  const auto seen = Frequencies(logits, {.temperature = 1, .min_p = 0.4f});
  EXPECT_NEAR(seen[0], 2.0 / 3, 0.015);
  EXPECT_NEAR(seen[1], 1.0 / 3, 0.015);
  EXPECT_EQ(seen[2], 0);
  const auto one =
      Frequencies(logits, {.temperature = 1, .top_k = 2, .min_p = 1}, 500);
  EXPECT_EQ(one[0], 1);
}

TEST(SamplerTest, RepetitionPenaltyCountsEachIdOnce) {
  SamplingParams params{.repetition_penalty = 2};
  EXPECT_EQ(SampleOnce({4, 3, -1}, params, {0, 0, 0}), 1);  // 4 / 2
  EXPECT_EQ(SampleOnce({4, 1.9f, -1}, params, {0, 0}), 0);  // not 4 / 4
  EXPECT_EQ(SampleOnce({-1, -1.5f}, params, {}, {0}), 1);   // -1 x 2
}

TEST(SamplerTest, PresenceAndFrequencyCountTheOutput) {
  SamplingParams params{.presence_penalty = 1};
  EXPECT_EQ(SampleOnce({2, 1.5f}, params, {0}, {}), 0);  // not the prompt
  EXPECT_EQ(SampleOnce({2, 1.5f}, params, {}, {0}), 1);
  EXPECT_EQ(SampleOnce({2.6f, 1.5f}, params, {}, {0, 0, 0}), 0);
  params = {.frequency_penalty = 0.25f};
  EXPECT_EQ(SampleOnce({2, 1.4f}, params, {}, {0, 0}), 0);
  EXPECT_EQ(SampleOnce({2, 1.4f}, params, {}, {0, 0, 0}), 1);
}

TEST(SamplerTest, PenaltiesLeaveNothingBehind) {
  Sampler sampler(3);
  const std::vector<float> logits = {4, 3, 2};
  const Ids ids = {0, 1, 0};
  SamplingParams penalized{
      .repetition_penalty = 3, .presence_penalty = 1, .frequency_penalty = 1};
  const auto first = sampler.Sample(logits, ids, ids, penalized);
  EXPECT_EQ(sampler.Sample(logits, ids, ids, penalized), first);
  EXPECT_EQ(sampler.Sample(logits, {}, {}, {}), 0);
}

TEST(SamplerTest, LogitBiasForcesAndForbids) {
  EXPECT_EQ(SampleOnce({1, 2, 3}, {.logit_bias = {{0, 100}}}), 0);
  EXPECT_EQ(SampleOnce({1, 2, 3}, {.logit_bias = {{2, -100}}}), 1);
}

TEST(SamplerTest, ExtremeLogitsAreSampledToo) {
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(SampleOnce({-most, most, 0}, {.temperature = 1}), 1);
  EXPECT_EQ(SampleOnce({0, 1}, {.temperature = 1e-6f}), 1);
}

TEST(SamplerTest, ValidateNamesTheField) {
  const auto message = [](const SamplingParams& params) {
    return std::string(params.Validate(10).message());
  };
  EXPECT_EQ(message({}), "");
  using ::testing::HasSubstr;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(message({.temperature = nan}), HasSubstr("temperature"));
  EXPECT_THAT(message({.temperature = -1}), HasSubstr("temperature"));
  EXPECT_THAT(message({.top_p = 1.5f}), HasSubstr("top_p"));
  EXPECT_THAT(message({.min_p = -0.1f}), HasSubstr("min_p"));
  EXPECT_THAT(message({.repetition_penalty = -1}),
              HasSubstr("repetition_penalty"));
  EXPECT_THAT(message({.presence_penalty = nan}),
              HasSubstr("presence_penalty"));
  EXPECT_THAT(message({.frequency_penalty = nan}),
              HasSubstr("frequency_penalty"));
  EXPECT_THAT(message({.logit_bias = {{10, 1}}}), HasSubstr("logit_bias"));
}

TEST(SamplerTest, AllFiniteSeesEveryKind) {
  EXPECT_TRUE(AllFinite(std::vector<float>{0, -1, 3e38f}));
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(AllFinite(std::vector<float>{0, inf}));
  EXPECT_FALSE(AllFinite(std::vector<float>{-inf, 0}));
  EXPECT_FALSE(AllFinite(std::vector<float>{0, std::nanf("")}));
}

TEST(LogprobsTest, AreThoseOfTheSoftmax) {
  const std::vector<float> logits = {0, 3, 1, 3, -2};
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit);
  const Logprobs logprobs = ComputeLogprobs(logits, 2, 3);
  EXPECT_FLOAT_EQ(logprobs.chosen, 1 - std::log(sum));
  ASSERT_EQ(logprobs.top.size(), 3u);
  EXPECT_EQ(logprobs.top[0].id, 1);  // of equals the lower id
  EXPECT_EQ(logprobs.top[1].id, 3);
  EXPECT_EQ(logprobs.top[2].id, 2);
  EXPECT_FLOAT_EQ(logprobs.top[1].logprob, 3 - std::log(sum));
  EXPECT_EQ(ComputeLogprobs(logits, 0, 20).top.size(), 5u);
  EXPECT_TRUE(ComputeLogprobs(logits, 0, 0).top.empty());
}

}  // namespace
}  // namespace holdfast::engine
