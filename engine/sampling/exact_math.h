// exp and log in double from additions, multiplications and divisions alone:
// the C library's differ between versions and machines, and a sampled token
// must not.
#ifndef HOLDFAST_ENGINE_SAMPLING_EXACT_MATH_H_
#define HOLDFAST_ENGINE_SAMPLING_EXACT_MATH_H_

namespace holdfast::engine {

// For x <= 0 (a logit less the largest one); within 2 ulp. 0 below -708.
double ExactExp(double x);
// For finite x >= 1 (a sum of exponentials with the largest one in it); within
// 2 ulp.
double ExactLog(double x);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SAMPLING_EXACT_MATH_H_
