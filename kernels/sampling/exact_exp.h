// The exponentials of a whole vocabulary, for each sampled token: additions and
// multiplications alone, so that they have the same bits on every machine, a
// GPU among them (its compiler must not fuse them: -fmad=false). The C
// library's exp differs between versions, and portable_math's fused operations
// are a call each without the instruction.
#ifndef HOLDFAST_KERNELS_SAMPLING_EXACT_EXP_H_
#define HOLDFAST_KERNELS_SAMPLING_EXACT_EXP_H_

#include <bit>
#include <cstdint>

namespace holdfast::kernels {

// For x <= 0 (a logit less the largest one); within 2 ulp. 0 below -708.
constexpr double ExactExp(double x) {
  // ln 2 in two parts: the first has so many trailing zeros that its product
  // with an exponent is exact.
  constexpr double kLn2High = 0x1.62e42feep-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kInvLn2 = 0x1.71547652b82fep0;
  if (x < -708.0) return 0.0;
  // Rounds to nearest for the numbers met here, whatever the library's mode.
  const auto k = static_cast<std::int64_t>(x * kInvLn2 - 0.5);
  const double n = static_cast<double>(k);
  const double r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= ln 2 / 2
  // Taylor's series: the first term left out is under 2^-57 of the sum.
  constexpr double kTerms[] = {
      1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
      1.0 / 362880.0,     1.0 / 40320.0,     1.0 / 5040.0,     1.0 / 720.0,
      1.0 / 120.0,        1.0 / 24.0,        1.0 / 6.0,        0.5};
  double sum = kTerms[0];
  for (int i = 1; i < 12; ++i) sum = sum * r + kTerms[i];
  const double power =
      std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
  return (1.0 + (r + r * r * sum)) * power;
}

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_SAMPLING_EXACT_EXP_H_
