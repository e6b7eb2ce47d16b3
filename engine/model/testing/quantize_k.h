// The storage formats of 256 numbers a block.
#ifndef HOLDFAST_ENGINE_MODEL_TESTING_QUANTIZE_K_H_
#define HOLDFAST_ENGINE_MODEL_TESTING_QUANTIZE_K_H_

#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace holdfast::model::testing {

inline constexpr int kBlockOfK = 256;

// Appends one block of Q4_K, Q5_K or Q6_K.
void AppendBlockOfK(kernels::WeightType type, std::span<const float> x,
                    std::string* out);

// Appends the block's 256 numbers.
void WidenBlockOfK(kernels::WeightType type, const char* block,
                   std::vector<float>* out);

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_QUANTIZE_K_H_
