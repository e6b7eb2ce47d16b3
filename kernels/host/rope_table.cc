#include "kernels/host/rope_table.h"

#include <string>

#include "kernels/portable_math.h"

namespace holdfast::kernels {

StatusOr<std::unique_ptr<HostRopeTable>> HostRopeTable::Make(
    std::span<const float> inverse_frequencies, int max_positions) {
  // Float positions above 2^24 would not be exact.
  if (inverse_frequencies.empty() || max_positions <= 0 ||
      max_positions > (1 << 24)) {
    return InvalidArgument(
        "rotary table: " + std::to_string(inverse_frequencies.size()) +
        " frequencies, " + std::to_string(max_positions) + " positions");
  }
  auto table = std::make_unique<HostRopeTable>();
  const std::size_t half = inverse_frequencies.size();
  table->rotary_dims_ = static_cast<int>(2 * half);
  table->max_positions_ = max_positions;
  HF_ASSIGN_OR_RETURN(table->memory_,
                      HostMemory::Make(2 * half * sizeof(float) * max_positions,
                                       "rotary table"));
  float* row = table->memory_.floats();
  for (int position = 0; position < max_positions; ++position) {
    for (std::size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * inverse_frequencies[i];
      const portable::SinCosResult result = portable::SinCos(angle);
      row[i] = static_cast<float>(result.cos);
      row[half + i] = static_cast<float>(result.sin);
    }
    row += 2 * half;
  }
  return table;
}

}  // namespace holdfast::kernels
