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

// The values' bytes in a storage type, F8_E4M3 excepted. The count must be a
// multiple of the type's block.
std::string Store(kernels::WeightType type, std::span<const float> values);

// The numbers that Store's bytes stand for.
std::vector<float> Widen(kernels::WeightType type, std::string_view bytes);

// A matrix of `cols` columns in F8_E4M3, with a scale for each 128 x 128
// numbers.
struct F8Matrix {
  std::string bytes;
  std::vector<float> scales;
};
F8Matrix StoreF8(std::span<const float> values, std::int64_t cols);
// Rounded once.
std::vector<float> WidenF8(const F8Matrix& matrix, std::int64_t cols);

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_QUANTIZE_H_
