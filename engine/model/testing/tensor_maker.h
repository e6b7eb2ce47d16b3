// Random tensors of the generated models.
#ifndef HOLDFAST_ENGINE_MODEL_TESTING_TENSOR_MAKER_H_
#define HOLDFAST_ENGINE_MODEL_TESTING_TENSOR_MAKER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/testing/tiny_weights.h"

namespace holdfast::model::testing {

// Each tensor depends on the seed, its name and its shape alone.
class TensorMaker {
 public:
  explicit TensorMaker(std::uint64_t seed) : seed_(seed) {}

  // Numbers about normal around `mean`, within 3.5 deviations. Exact in float
  // up to the last operation, so equal on every machine.
  void Add(std::string name, std::string gguf_name,
           std::vector<std::int64_t> shape, float deviation, float mean = 0);

  // What was added since the last call.
  std::vector<TinyTensor> Take() { return std::exchange(tensors_, {}); }

 private:
  std::uint64_t seed_;
  std::vector<TinyTensor> tensors_;
};

// The deviation that keeps a product of `inputs` numbers about as wide as they.
float Fan(std::int64_t inputs);

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_TENSOR_MAKER_H_
