#include "kernels/portable_math.h"

#include <bit>
#include <cmath>
#include <cstdint>

#ifdef __FAST_MATH__
#error "the arithmetic is defined to the bit: build without -ffast-math"
#endif

namespace holdfast::kernels::portable {
namespace {

constexpr double kLog2High = 0x1.62e42fefa3800p-1;  // ln 2, 42 bits
constexpr double kLog2Low = 0x1.ef35793c76730p-45;
constexpr double kLog2E = 1.4426950408889634;

// std::fma with three doubles is one correctly rounded operation whether the
// machine has the instruction or the library computes it.
double Fma(double a, double b, double c) { return std::fma(a, b, c); }

// The nearest integer, for |x| below 2^51; independent of the rounding mode's
// ties, which cannot change a result here beyond its error bound.
double Nearest(double x) {
  const double magic = 0x1.8p52;
  return (x + magic) - magic;
}

double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023)
                               << 52);
}

// A number as the unevaluated sum of two, for Pow: its error in the exponent
// is magnified by the exponent's size.
struct Pair {
  double high;
  double low;
};

Pair FastTwoSum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

Pair TwoSum(double a, double b) {
  const double sum = a + b;
  const double part = sum - a;
  return {sum, (a - (sum - part)) + (b - part)};
}

Pair LogPair(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffull) |
                                   0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    exponent += 1;
  }
  // log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.1716; s in two parts.
  const double numerator = m - 1.0;
  const Pair denominator = TwoSum(m, 1.0);
  const double s = numerator / denominator.high;
  const double s_low =
      (Fma(-s, denominator.high, numerator) - s * denominator.low) /
      denominator.high;
  const double s2 = s * s;
  double tail = 0.0;  // sum of s^(2k) / (2k + 1) from k = 1
  for (int k = 12; k >= 1; --k) tail = Fma(tail, s2, 1.0 / (2 * k + 1));
  tail *= s2;
  const double e = exponent;
  Pair sum = TwoSum(e * kLog2High, 2.0 * s);
  sum.low += Fma(2.0 * s, tail, 2.0 * s_low) + e * kLog2Low;
  return FastTwoSum(sum.high, sum.low);
}

// e^(x + low).
double ExpPair(double x, double low) {
  const double n = Nearest(x * kLog2E);
  double r = Fma(-n, kLog2High, x);
  r = r + Fma(-n, kLog2Low, low);
  double sum = 1.0 / 6227020800.0;  // 1 / 13!
  double factorial = 6227020800.0;
  for (int k = 12; k >= 0; --k) {
    factorial /= k + 1;
    sum = Fma(sum, r, 1.0 / factorial);
  }
  const int exponent = static_cast<int>(n);
  const int half = exponent / 2;  // two steps: 2^1024 is not representable
  return sum * PowerOfTwo(half) * PowerOfTwo(exponent - half);
}

double SinTaylor(double r) {
  const double r2 = r * r;
  double term = 0.0;  // ((...)) with coefficients 1 / ((2k)(2k + 1))
  for (int k = 9; k >= 1; --k) {
    term = (1.0 - term) * r2 / (2.0 * k * (2.0 * k + 1.0));
  }
  return Fma(-r, term, r);
}

double CosTaylor(double r) {
  const double r2 = r * r;
  double term = 0.0;
  for (int k = 9; k >= 1; --k) {
    term = (1.0 - term) * r2 / ((2.0 * k - 1.0) * (2.0 * k));
  }
  return 1.0 - term;
}

}  // namespace

double Log(double x) {
  const Pair log = LogPair(x);
  return log.high + log.low;
}

double Exp(double x) { return ExpPair(x, 0.0); }

double Pow(double base, double exponent) {
  const Pair log = LogPair(base);
  const double high = log.high * exponent;
  const double low = Fma(log.high, exponent, -high) + log.low * exponent;
  return ExpPair(high, low);
}

SinCosResult SinCos(double x) {
  // pi / 2 in three parts of 33, 33 and 53 bits: n times the first two is
  // exact while n has at most 20 bits, and the fused steps keep the rest.
  constexpr double kPiHalf1 = 1.57079632673412561417e+00;
  constexpr double kPiHalf2 = 6.07710050630396597660e-11;
  constexpr double kPiHalf3 = 2.02226624879595063154e-21;
  const double n = Nearest(x * 0.63661977236758134308);
  double r = Fma(-n, kPiHalf1, x);
  r = Fma(-n, kPiHalf2, r);
  r = Fma(-n, kPiHalf3, r);
  const double sin = SinTaylor(r);
  const double cos = CosTaylor(r);
  switch (static_cast<std::int64_t>(n) & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

}  // namespace holdfast::kernels::portable
