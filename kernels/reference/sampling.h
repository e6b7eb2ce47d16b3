// The double-precision twin of choosing tokens from logits.
#ifndef HOLDFAST_KERNELS_REFERENCE_SAMPLING_H_
#define HOLDFAST_KERNELS_REFERENCE_SAMPLING_H_

#include <span>

#include "kernels/sampling/token_choice.h"

namespace holdfast::kernels::reference {

// How far the draw lies outside of the part of [0, 1) that `id` has among what
// the filters leave, best first; 0: it is the token to choose. 1: the filters
// leave it out.
double OutsideShare(std::span<const float> logits, const TokenChoice& choice,
                    int id);

}  // namespace holdfast::kernels::reference

#endif  // HOLDFAST_KERNELS_REFERENCE_SAMPLING_H_
