#include "kernels/backend.h"

namespace holdfast::kernels {
namespace {

struct TypeInfo {
  const char* name = "unknown";
  int block = 1;
  int block_bytes = 0;
};

TypeInfo InfoOf(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return {"F32", 1, 4};
    case WeightType::kF16:
      return {"F16", 1, 2};
    case WeightType::kBF16:
      return {"BF16", 1, 2};
    case WeightType::kQ8_0:
      return {"Q8_0", 32, 34};
    case WeightType::kQ4_0:
      return {"Q4_0", 32, 18};
    case WeightType::kQ4_1:
      return {"Q4_1", 32, 20};
    case WeightType::kQ5_0:
      return {"Q5_0", 32, 22};
    case WeightType::kQ5_1:
      return {"Q5_1", 32, 24};
    case WeightType::kQ4_K:
      return {"Q4_K", 256, 144};
    case WeightType::kQ5_K:
      return {"Q5_K", 256, 176};
    case WeightType::kQ6_K:
      return {"Q6_K", 256, 210};
    case WeightType::kF8E4M3:
      return {"F8_E4M3", 32, 32};
  }
  return {};
}

}  // namespace

const char* WeightTypeName(WeightType type) { return InfoOf(type).name; }

int WeightBlock(WeightType type) { return InfoOf(type).block; }

std::size_t WeightRowBytes(WeightType type, std::int64_t cols) {
  const TypeInfo info = InfoOf(type);
  if (cols <= 0 || cols % info.block != 0) return 0;
  return static_cast<std::size_t>(cols / info.block) * info.block_bytes;
}

}  // namespace holdfast::kernels
