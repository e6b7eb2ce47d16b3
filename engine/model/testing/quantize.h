// Writes numbers in the storage formats of weights.
#ifndef HOLDFAST_ENGINE_MODEL_TESTING_QUANTIZE_H_
#define HOLDFAST_ENGINE_MODEL_TESTING_QUANTIZE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"

namespace holdfast::model::testing {

// Round to nearest, ties to even; past the largest half becomes infinity.
std::uint16_t FloatToF16(float value);

// The values' bytes in a storage type. For types of blocks the count must be a
// multiple of 32.
std::string Store(kernels::WeightType type, std::span<const float> values);

// The numbers that Store's bytes stand for.
std::vector<float> Widen(kernels::WeightType type, std::string_view bytes);

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_QUANTIZE_H_
