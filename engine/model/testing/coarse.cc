#include "engine/model/testing/coarse.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "engine/model/testing/quantize.h"

namespace holdfast::model::testing {
namespace {

constexpr std::size_t kRun = 32;
constexpr float kMost = 127;

void CoarsenRun(std::span<float> run) {
  const auto by_size = [](float a, float b) {
    return std::fabs(a) < std::fabs(b);
  };
  float& largest = *std::max_element(run.begin(), run.end(), by_size);
  if (largest == 0) return;
  int exponent = 0;
  std::frexp(largest / kMost, &exponent);
  const float step = std::ldexp(1.0f, exponent);
  for (float& value : run) {
    value = std::clamp(std::nearbyint(value / step), -kMost, kMost) * step;
  }
  largest = std::copysign(kMost * step, largest);
}

}  // namespace

void Coarsen(TinyTensor* tensor) {
  std::vector<float>& values = tensor->values;
  if (tensor->shape.size() > 1 && tensor->shape.back() % kRun == 0) {
    for (std::size_t i = 0; i < values.size(); i += kRun) {
      CoarsenRun(std::span(values).subspan(i, kRun));
    }
    return;
  }
  constexpr auto kBF16 = kernels::WeightType::kBF16;
  values = Widen(kBF16, Store(kBF16, values));
}

}  // namespace holdfast::model::testing
