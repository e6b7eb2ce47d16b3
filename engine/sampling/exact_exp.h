// The exponentials of a whole vocabulary, for each sampled token: additions and
// multiplications alone. The C library's exp differs between versions, and
// portable_math's fused operations are a call each without the instruction.
#ifndef HOLDFAST_ENGINE_SAMPLING_EXACT_EXP_H_
#define HOLDFAST_ENGINE_SAMPLING_EXACT_EXP_H_

namespace holdfast::engine {

// For x <= 0 (a logit less the largest one); within 2 ulp. 0 below -708.
double ExactExp(double x);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SAMPLING_EXACT_EXP_H_
