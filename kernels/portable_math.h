// Elementary functions in double precision from + - * / and explicit fused
// multiply-add alone. No libm: its last bits differ between versions, and what
// is computed here (rotary tables, inverse frequencies) reaches cached bytes.
// Relative error about 1e-15 (sine and cosine: absolute error, for arguments
// below about 1e8).
#ifndef HOLDFAST_KERNELS_PORTABLE_MATH_H_
#define HOLDFAST_KERNELS_PORTABLE_MATH_H_

namespace holdfast::kernels::portable {

// Natural logarithm of a positive, normal number.
double Log(double x);

// e^x for |x| below 700.
double Exp(double x);

// base^exponent for a positive base.
double Pow(double base, double exponent);

struct SinCosResult {
  double sin;
  double cos;
};
SinCosResult SinCos(double x);

}  // namespace holdfast::kernels::portable

#endif  // HOLDFAST_KERNELS_PORTABLE_MATH_H_
