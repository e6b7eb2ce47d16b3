// Numbers that several storage formats hold alike.
#ifndef HOLDFAST_ENGINE_MODEL_TESTING_COARSE_H_
#define HOLDFAST_ENGINE_MODEL_TESTING_COARSE_H_

#include "engine/model/testing/tiny_weights.h"

namespace holdfast::model::testing {

// Rounds a tensor's numbers: in runs of 32 of a matrix's row to -127 to 127
// times a power of two, one of them +-127 (what Q8_0 stores exactly); others to
// BF16.
void Coarsen(TinyTensor* tensor);

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_COARSE_H_
