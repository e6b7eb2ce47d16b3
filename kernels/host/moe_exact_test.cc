// Experts and gates are equal bit for bit on every instruction set and thread
// count, alone and in any company.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/host/moe_testing.h"
#include "kernels/host/testing.h"

namespace holdfast::kernels {
namespace {

using testing::MoeLayer;
using testing::Random;

constexpr int kRows = 130;
constexpr int kCols = 100;
constexpr MoeShape kShape = {21, 3, true, 96, 64};
constexpr int kStride = 22;

bool Same(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class MoeExactTest : public ::testing::TestWithParam<WeightType> {
 protected:
  MoeExactTest() {
    Random random(61);
    logits_ = random.Floats(kRows * kStride, 5.0f);
    x_ = random.Floats(kRows * kShape.hidden);
    // Most rows agree on one expert: it gets many rows, others one or none.
    for (int r = 0; r < kRows; ++r) logits_[r * kStride + 4] += r % 9 ? 9 : -9;
  }

  // Launches of `batch` rows.
  std::vector<float> Run(const MoeLayer& layer, int batch) const {
    std::vector<float> out;
    for (int row = 0; row < kRows; row += batch) {
      const std::size_t rows = std::min(batch, kRows - row);
      const auto part =
          layer.Run({&logits_[row * kStride], rows * kStride}, kStride,
                    {&x_[row * kShape.hidden], rows * kShape.hidden});
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

  std::vector<float> logits_, x_;
};

TEST_P(MoeExactTest, EveryBatchTargetAndThreadCount) {
  const auto want = Run(MoeLayer(kShape, GetParam(), 1), 1);
  for (const float value : want) ASSERT_TRUE(std::isfinite(value));
  testing::ForEachTarget([&](const std::string& name) {
    for (int threads = 1; threads <= 3; ++threads) {
      const MoeLayer layer(kShape, GetParam(), threads);
      for (const int batch : {1, 2, 16, 17, kRows}) {
        EXPECT_TRUE(Same(Run(layer, batch), want))
            << name << ", " << threads << " threads, " << batch << " rows";
      }
    }
  });
}

// Rows in another order, among other rows.
TEST_P(MoeExactTest, CompanyDoesNotMatter) {
  const MoeLayer layer(kShape, GetParam(), 2);
  const auto want = Run(layer, kRows);
  std::vector<float> logits, x;
  for (int r = kRows - 1; r >= 0; r -= 2) {
    logits.insert(logits.end(), &logits_[r * kStride],
                  &logits_[r * kStride] + kStride);
    x.insert(x.end(), &x_[r * kShape.hidden],
             &x_[r * kShape.hidden] + kShape.hidden);
  }
  const auto out = layer.Run(logits, kStride, x);
  for (int i = 0, r = kRows - 1; r >= 0; r -= 2, ++i) {
    EXPECT_TRUE(Same({&out[i * kShape.hidden], std::size_t(kShape.hidden)},
                     {&want[r * kShape.hidden], std::size_t(kShape.hidden)}));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MoeExactTest,
                         ::testing::Values(WeightType::kF32, WeightType::kBF16,
                                           WeightType::kQ8_0),
                         [](const auto& info) {
                           return std::string(WeightTypeName(info.param));
                         });

TEST(GateExactTest, EveryBatchTargetAndThreadCount) {
  Random random(62);
  const auto x = random.Floats(kRows * kCols);
  const auto y = random.Floats(kRows * kCols);
  auto gate = random.Floats(kRows * (kCols + 7), 30.0f);
  gate[3] = 200.0f;
  gate[4] = -200.0f;
  const auto run = [&](Backend& backend, int batch) {
    auto out = x;
    for (int row = 0; row < kRows; row += batch) {
      const int rows = std::min(batch, kRows - row);
      const float* gates = &gate[row * (kCols + 7)];
      backend.SigmoidMul(&out[row * kCols], gates, kCols + 7, rows, kCols);
      backend.AddGated(&out[row * kCols], &y[row * kCols], gates + 5, kCols + 7,
                       rows, kCols);
    }
    return out;
  };
  const auto want = run(*testing::MakeBackend(1), 1);
  testing::ForEachTarget([&](const std::string& name) {
    for (int threads = 1; threads <= 3; ++threads) {
      auto backend = testing::MakeBackend(threads);
      for (const int batch : {1, 3, 16, 17, kRows}) {
        EXPECT_TRUE(Same(run(*backend, batch), want)) << name;
      }
    }
  });
}

}  // namespace
}  // namespace holdfast::kernels
