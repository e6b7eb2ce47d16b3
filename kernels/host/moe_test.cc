// Experts and gates against their double-precision twins, and their choice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/host/moe_testing.h"
#include "kernels/host/testing.h"
#include "kernels/reference/reference.h"

namespace holdfast::kernels {
namespace {

using reference::FromFloats;
using reference::Numbers;
using testing::MoeLayer;
using testing::Random;

TEST(MoeTest, EqualsTwin) {
  for (const bool normalise : {true, false}) {
    for (const auto& [experts, top_k] : {std::pair{8, 2}, std::pair{37, 5},
                                         std::pair{4, 4}, std::pair{3, 1}}) {
      const MoeLayer layer({experts, top_k, normalise, 64, 48},
                           WeightType::kF32, 2);
      const int rows = 45, stride = experts + 1;
      Random random(3);
      const auto logits = layer.Logits(random, rows, stride);
      const auto x = random.Floats(rows * 64);
      const auto out = layer.Run(logits, stride, x);
      for (int r = 0; r < rows; ++r) {
        const Numbers want = reference::MoeExperts(
            layer.shape, layer.numbers,
            FromFloats({&logits[r * stride], std::size_t(experts)}),
            FromFloats({&x[r * 64], 64}));
        for (int i = 0; i < 64; ++i) {
          ASSERT_NEAR(out[r * 64 + i], want[i], 1e-4) << r << " " << i;
        }
      }
    }
  }
}

// A row of zeros but for one expert's output: which experts were taken.
std::vector<int> Chosen(MoeLayer& layer, std::vector<float> logits) {
  std::vector<int> ids;
  Random random(5);
  const auto x = random.Floats(layer.shape.hidden);
  const auto all = layer.Run(logits, static_cast<int>(logits.size()), x);
  for (int e = 0; e < layer.shape.experts; ++e) {
    // Without expert e's output the sum differs if e was taken.
    const ExpertWeights kept = layer.experts[e];
    layer.experts[e] = layer.experts[(e + 1) % layer.shape.experts];
    if (layer.Run(logits, static_cast<int>(logits.size()), x) != all) {
      ids.push_back(e);
    }
    layer.experts[e] = kept;
  }
  return ids;
}

TEST(MoeTest, TiesGoToTheLowerId) {
  MoeLayer layer({6, 2, true, 32, 32}, WeightType::kF32, 1);
  EXPECT_EQ(Chosen(layer, {1, 1, 1, 1, 1, 1}), (std::vector{0, 1}));
  EXPECT_EQ(Chosen(layer, {0, 1, 2, 2, 2, 1}), (std::vector{2, 3}));
  EXPECT_EQ(Chosen(layer, {1, 0, 3, 1, 0, 1}), (std::vector{0, 2}));
  EXPECT_EQ(Chosen(layer, {0, 0, 0, 0, 1, 2}), (std::vector{4, 5}));
  EXPECT_EQ(Chosen(layer, {-0.0f, 0, 0, -0.0f, 0, 0}), (std::vector{0, 1}));
}

TEST(MoeTest, ARowThatIsNotFiniteLeavesTheOthers) {
  const MoeLayer layer({6, 2, true, 32, 32}, WeightType::kF32, 2);
  Random random(6);
  auto logits = layer.Logits(random, 3, 6);
  const auto x = random.Floats(3 * 32);
  const auto want = layer.Run(logits, 6, x);
  for (const float bad : {NAN, -INFINITY, INFINITY}) {
    std::fill_n(&logits[6], 6, bad);
    const auto out = layer.Run(logits, 6, x);
    EXPECT_TRUE(std::equal(&out[0], &out[32], &want[0]));
    EXPECT_TRUE(std::equal(&out[64], out.data() + 96, &want[64]));
    EXPECT_FALSE(std::isfinite(out[32]));
  }
}

TEST(MoeTest, ShapesThatCannotBeAreRefused) {
  auto backend = testing::MakeBackend(1);
  for (const MoeShape& shape :
       {MoeShape{4, 5, true, 32, 32}, MoeShape{4, 0, true, 32, 32},
        MoeShape{4, 2, true, 0, 32}, MoeShape{4, 2, true, 32, 0}}) {
    Limits limits = testing::TestLimits();
    limits.moe = shape;
    const Status status = backend->Prepare(limits);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("experts"), std::string::npos);
  }
}

TEST(GateTest, SigmoidMulAndAddGated) {
  Random random(7);
  auto backend = testing::MakeBackend(2);
  const int rows = 35, cols = 77, stride = 90;
  const auto before = random.Floats(rows * cols);
  const auto y = random.Floats(rows * cols);
  auto gate = random.Floats(rows * stride, 20.0f);
  gate[0] = -1000.0f;  // beyond the exponential's range
  gate[1] = 1000.0f;
  auto product = before;
  backend->SigmoidMul(product.data(), gate.data(), stride, rows, cols);
  auto sum = before;
  backend->AddGated(sum.data(), y.data(), &gate[2], stride, rows, cols);
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < cols; ++i) {
      const int at = r * cols + i;
      const double want = before[at] * reference::Sigmoid(gate[r * stride + i]);
      ASSERT_NEAR(product[at], want, 1e-6 * std::fabs(want) + 1e-30);
      ASSERT_NEAR(sum[at],
                  before[at] + reference::Sigmoid(gate[r * stride + 2]) * y[at],
                  1e-6);
    }
  }
}

}  // namespace
}  // namespace holdfast::kernels
