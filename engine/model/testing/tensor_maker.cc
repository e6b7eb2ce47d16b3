#include "engine/model/testing/tensor_maker.h"

#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

namespace holdfast::model::testing {
namespace {

class Random {
 public:
  Random(std::uint64_t seed, std::string_view name) : state_(seed) {
    for (char c : name) {
      state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    }
  }

  // Mean 0, deviation 1.
  float Next() {
    constexpr float kRoot3 = 1.7320508f;
    float sum = -2;
    for (int i = 0; i < 4; ++i) {
      sum += static_cast<float>(NextBits() >> 44) * 0x1p-20f;
    }
    return sum * kRoot3;
  }

 private:
  std::uint64_t NextBits() {  // splitmix64
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

}  // namespace

float Fan(std::int64_t inputs) {
  return 1 / std::sqrt(static_cast<float>(inputs));
}

void TensorMaker::Add(std::string name, std::string gguf_name,
                      std::vector<std::int64_t> shape, float deviation,
                      float mean) {
  TinyTensor tensor;
  std::size_t count = 1;
  for (std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  Random random(seed_, name);
  tensor.values.resize(count);
  for (float& value : tensor.values) {
    value = deviation * random.Next();
    if (mean != 0) value = mean + value;
  }
  tensor.name = std::move(name);
  tensor.gguf_name = std::move(gguf_name);
  tensor.shape = std::move(shape);
  tensors_.push_back(std::move(tensor));
}

}  // namespace holdfast::model::testing
