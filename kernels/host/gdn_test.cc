// The gated delta net against its double-precision twin.
#include "kernels/reference/gdn.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/host/gdn_kernels.h"
#include "kernels/host/gdn_testing.h"
#include "kernels/host/testing.h"

namespace holdfast::kernels {
namespace {

using reference::Numbers;
using testing::GdnLayer;
using testing::GdnSections;

std::unique_ptr<Backend> Prepared(const GdnShape& shape, int threads) {
  auto backend = testing::MakeBackend(threads);
  Limits limits = testing::TestLimits();
  limits.gdn = shape;
  EXPECT_TRUE(backend->Prepare(limits).ok());
  return backend;
}

class GdnTest : public ::testing::TestWithParam<StateType> {};

TEST_P(GdnTest, EqualsTwin) {
  for (const GdnShape& shape :
       {GdnShape{2, 2, 128, 128, GdnHeads::kGrouped, GetParam()},
        GdnShape{2, 6, 32, 64, GdnHeads::kGrouped, GetParam()},
        GdnShape{2, 6, 32, 64, GdnHeads::kTiled, GetParam()},
        GdnShape{1, 2, 16, 96, GdnHeads::kGrouped, GetParam()},
        GdnShape{1, 1, 256, 256, GdnHeads::kGrouped, GetParam()}}) {
    SCOPED_TRACE(shape.key_dim);
    constexpr int kRows = 150;
    GdnLayer layer(shape, 1);
    auto backend = Prepared(shape, 2);
    const auto projected = layer.Rows(kRows);
    const int width = shape.ProjectedWidth();
    GdnSections sections(shape, testing::kQuietNan);
    std::vector<float> out(kRows * shape.ValueWidth(), NAN);
    // A prefill and two single rows.
    for (const auto& [position, rows] :
         {std::pair{0, kRows - 2}, std::pair{kRows - 2, 1},
          std::pair{kRows - 1, 1}}) {
      const RowSpan span = {nullptr, 0, position, rows, sections.data()};
      backend->GatedDeltaNet(shape, layer.weights(), sections.place(),
                             &projected[position * width], width, {&span, 1},
                             &out[position * shape.ValueWidth()]);
    }
    reference::GdnState state = reference::ZeroState(shape);
    for (int r = 0; r < kRows; ++r) {
      const Numbers want =
          reference::GdnRow(shape, layer.numbers(),
                            reference::FromFloats(std::span<const float>(
                                &projected[r * width], width)),
                            state);
      for (int i = 0; i < shape.ValueWidth(); ++i) {
        ASSERT_NEAR(out[r * shape.ValueWidth() + i], want[i], 2e-5)
            << r << " " << i;
      }
    }
    const reference::GdnState got = sections.state();
    for (std::size_t i = 0; i < state.tail.size(); ++i) {
      ASSERT_EQ(got.tail[i], state.tail[i]) << i;
    }
    for (std::size_t i = 0; i < state.state.size(); ++i) {
      ASSERT_NEAR(got.state[i], state.state[i], 5e-6) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(States, GdnTest,
                         ::testing::Values(StateType::kBF16, StateType::kF32),
                         [](const auto& info) {
                           return info.param == StateType::kBF16 ? "BF16"
                                                                 : "F32";
                         });

// Over the gates' whole range, each in relative terms: a small decay rate times
// a small softplus matters over many tokens.
TEST(GdnGates, EqualTwin) {
  testing::Random random(11);
  constexpr int kHeads = 37;
  testing::ForEachTarget([&](const std::string& name) {
    SCOPED_TRACE(name);
    const GdnKernels* kernels = ChooseGdnKernels();
    for (const float size : {0.01f, 1.0f, 20.0f, 100.0f, 2000.0f}) {
      const auto b = random.Floats(kHeads, size);
      const auto a = random.Floats(kHeads, size);
      const auto bias = random.Floats(kHeads);
      auto rate = random.Floats(kHeads, 8.0f);
      for (float& r : rate) r = -std::fabs(r);
      std::vector<float> beta(3 * kHeads), decay(3 * kHeads);
      kernels->gates(b.data(), a.data(), rate.data(), bias.data(), kHeads, 3,
                     beta.data(), decay.data());
      for (int h = 0; h < kHeads; ++h) {
        const double open = reference::Sigmoid(b[h]);
        EXPECT_NEAR(beta[3 * h], open, 1e-6 * open + 1e-38);
        const float dt = a[h] + bias[h];
        const double kept = std::exp(rate[h] * reference::Softplus(dt));
        EXPECT_NEAR(decay[3 * h], kept, 1e-5 * kept + 2e-38);
        if (kept > 0.9) {
          EXPECT_NEAR(1.0 - decay[3 * h], 1.0 - kept, 1e-7);
        }
      }
    }
  });
}

TEST(GdnShapes, ThoseThatNoKernelComputesAreRefused) {
  auto backend = testing::MakeBackend(1);
  for (const GdnShape& shape :
       {GdnShape{2, 3, 128, 128}, GdnShape{2, 4, 24, 128},
        GdnShape{2, 4, 128, 48}, GdnShape{2, 4, 512, 128},
        GdnShape{0, 4, 128, 128}}) {
    Limits limits = testing::TestLimits();
    limits.gdn = shape;
    const Status status = backend->Prepare(limits);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("gated delta net"), std::string::npos);
  }
}

}  // namespace
}  // namespace holdfast::kernels
