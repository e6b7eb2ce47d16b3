#include "kernels/portable_math.h"

#include <gtest/gtest.h>

#include <cmath>

namespace holdfast::kernels::portable {
namespace {

constexpr double kTolerance = 1e-15;

TEST(PortableMathTest, LogAndExp) {
  for (double x = 1e-300; x < 1e300; x *= 1.37) {
    const double want = std::log(x);
    EXPECT_NEAR(Log(x), want, kTolerance * std::fmax(1.0, std::fabs(want)));
  }
  for (double x = -690; x < 690; x += 0.73) {
    EXPECT_NEAR(Exp(x) / std::exp(x), 1.0, kTolerance) << x;
  }
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_EQ(Log(1.0), 0.0);
}

TEST(PortableMathTest, PowOfRotaryBases) {
  for (const double base : {0.25, 10000.0, 500000.0, 1e7}) {
    for (double exponent = -2; exponent < 2; exponent += 0.0137) {
      EXPECT_NEAR(Pow(base, exponent) / std::pow(base, exponent), 1.0,
                  kTolerance);
    }
  }
  EXPECT_EQ(Pow(10000.0, 0.0), 1.0);
}

TEST(PortableMathTest, SinCos) {
  for (double x = 1e-4; x < 2e7; x *= 1.0031) {
    for (const double angle : {x, -x}) {
      const SinCosResult result = SinCos(angle);
      EXPECT_NEAR(result.sin, std::sin(angle), kTolerance) << angle;
      EXPECT_NEAR(result.cos, std::cos(angle), kTolerance) << angle;
    }
  }
  EXPECT_EQ(SinCos(0.0).sin, 0.0);
  EXPECT_EQ(SinCos(0.0).cos, 1.0);
}

}  // namespace
}  // namespace holdfast::kernels::portable
