#include "engine/model/rope.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast::model {
namespace {

TEST(RopeTest, PlainFrequenciesArePowersOfTheBase) {
  const auto plain = InverseFrequencies({.theta = 10000}, 64, {});
  ASSERT_EQ(plain.size(), 32u);
  EXPECT_EQ(plain[0], 1.0f);
  for (int i = 0; i < 32; ++i) {
    EXPECT_NEAR(plain[i], std::pow(10000.0, -i / 32.0), 1e-7 * plain[i]);
  }
}

TEST(RopeTest, LinearScalingDividesAll) {
  const auto plain = InverseFrequencies({.theta = 10000}, 64, {});
  const auto scaled = InverseFrequencies(
      {.theta = 10000, .scaling = RopeConfig::Scaling::kLinear, .factor = 4},
      64, {});
  for (int i = 0; i < 32; ++i) EXPECT_EQ(scaled[i], plain[i] / 4);
}

TEST(RopeTest, Llama3ScalingStretchesLongWavesAlone) {
  const RopeConfig config = {.theta = 500000,
                             .scaling = RopeConfig::Scaling::kLlama3,
                             .factor = 8,
                             .low_freq_factor = 1,
                             .high_freq_factor = 4,
                             .original_context = 8192};
  const auto plain = InverseFrequencies({.theta = 500000}, 128, {});
  const auto scaled = InverseFrequencies(config, 128, {});
  int kept = 0, between = 0, stretched = 0;
  for (int i = 0; i < 64; ++i) {
    const double wave = 2 * M_PI / plain[i];
    if (wave < 8192 / 4) {
      EXPECT_EQ(scaled[i], plain[i]);
      ++kept;
    } else if (wave > 8192) {
      EXPECT_EQ(scaled[i], plain[i] / 8);
      ++stretched;
    } else {
      EXPECT_LT(scaled[i], plain[i]);
      EXPECT_GT(scaled[i], plain[i] / 8);
      ++between;
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(between, 2);
  EXPECT_GT(stretched, 20);
}

TEST(RopeTest, DivisorsDivideOneByOne) {
  const std::vector<float> divisors = {1, 2, 4, 8};
  const auto plain = InverseFrequencies({}, 8, {});
  const auto divided = InverseFrequencies({}, 8, divisors);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(divided[i], plain[i] / divisors[i]);
}

}  // namespace
}  // namespace holdfast::model
