#include "kernels/backend.h"

namespace holdfast::kernels {

const char* WeightTypeName(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return "F32";
    case WeightType::kF16:
      return "F16";
    case WeightType::kBF16:
      return "BF16";
    case WeightType::kQ8_0:
      return "Q8_0";
    case WeightType::kQ4_0:
      return "Q4_0";
    case WeightType::kQ4_1:
      return "Q4_1";
  }
  return "unknown";
}

std::size_t WeightRowBytes(WeightType type, std::int64_t cols) {
  if (cols <= 0) return 0;
  const auto count = static_cast<std::size_t>(cols);
  const std::size_t blocks = count % 32 == 0 ? count / 32 : 0;
  switch (type) {
    case WeightType::kF32:
      return count * 4;
    case WeightType::kF16:
    case WeightType::kBF16:
      return count * 2;
    case WeightType::kQ8_0:
      return blocks * 34;
    case WeightType::kQ4_0:
      return blocks * 18;
    case WeightType::kQ4_1:
      return blocks * 20;
  }
  return 0;
}

}  // namespace holdfast::kernels
