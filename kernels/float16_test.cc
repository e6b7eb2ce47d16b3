#include "kernels/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace holdfast::kernels {
namespace {

double HalfByDefinition(int bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  if (exponent == 31 && mantissa == 0) {
    return sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Float16Test, EveryHalf) {
  for (int bits = 0; bits < 65536; ++bits) {
    const float got = F16ToFloat(static_cast<std::uint16_t>(bits));
    if ((bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0) {
      EXPECT_TRUE(std::isnan(got)) << bits;
      continue;
    }
    EXPECT_EQ(got, HalfByDefinition(bits)) << bits;
    EXPECT_EQ(std::signbit(got), (bits & 0x8000) != 0) << bits;
  }
}

TEST(Float16Test, Bf16RoundsToNearestEven) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto stored = static_cast<std::uint16_t>(bits);
    const float value = Bf16ToFloat(stored);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(value))));
      continue;
    }
    EXPECT_EQ(FloatToBf16(value), stored);
  }
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x7f7fffffu)), 0x7f80);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x00000001u)), 0x0000);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
}

}  // namespace
}  // namespace holdfast::kernels
