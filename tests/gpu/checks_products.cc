#include "kernels/reference/reference.h"
#include "kernels/self_test.h"
#include "tests/gpu/checks.h"

namespace holdfast::gpu_check {
namespace {

using kernels::WeightType;
using kernels::reference::FromFloats;
using kernels::reference::Numbers;

constexpr int kMostRows = 37;
constexpr int kOutputs = 75;

Numbers Twin(const std::vector<OwnedTensor>& parts, std::span<const float> x,
             std::span<const float> bias) {
  Numbers weights;
  for (const OwnedTensor& part : parts) {
    const Numbers numbers = kernels::reference::Widen(part.tensor);
    weights.insert(weights.end(), numbers.begin(), numbers.end());
  }
  return kernels::reference::MatMul(weights,
                                    static_cast<int>(parts[0].tensor.cols),
                                    FromFloats(x), FromFloats(bias));
}

// Few rows read the weights as they are, in float; more go through bf16.
void Product(Checker& checker, const std::string& name,
             const std::vector<OwnedTensor>& parts, Random& random) {
  auto& backend = checker.backend();
  std::vector<kernels::WeightTensor> tensors;
  int outputs = 0;
  for (const OwnedTensor& part : parts) {
    tensors.push_back(part.tensor);
    outputs += static_cast<int>(part.tensor.rows);
  }
  const auto matrix = backend.PackMatrix(tensors);
  if (!matrix.ok()) {
    checker.Expect(matrix.status());
    return checker.Compare(name, {}, {}, 0.0);
  }
  const int cols = static_cast<int>(parts[0].tensor.cols);
  const auto bias = random.Floats(outputs);
  float* const device_bias = checker.Upload(bias);
  for (const int rows : {1, 3, 8, 9, kMostRows}) {
    const auto x = random.Floats(std::size_t(rows) * cols);
    float* const y =
        checker.Upload(std::vector<float>(std::size_t(rows) * outputs, 7.0f));
    backend.MatMul(**matrix, checker.Upload(x), rows, device_bias, y);
    checker.Compare(name + " x " + std::to_string(rows),
                    checker.Download(y, std::size_t(rows) * outputs),
                    Twin(parts, x, bias), rows <= 8 ? kFloatLimit : kBf16Limit);
  }
}

void Embedding(Checker& checker, const OwnedTensor& table) {
  auto& backend = checker.backend();
  const auto matrix = backend.PackMatrix({&table.tensor, 1});
  if (!matrix.ok()) return checker.Expect(matrix.status());
  const std::int32_t ids[] = {0, kOutputs - 1, 7, 7, 31};
  const auto cols = static_cast<std::size_t>(table.tensor.cols);
  float* const out = checker.Upload(std::vector<float>(5 * cols));
  backend.EmbedRows(**matrix, ids, out);
  const Numbers all = kernels::reference::Widen(table.tensor);
  Numbers want;
  for (const std::int32_t id : ids) {
    want.insert(want.end(), all.begin() + id * cols,
                all.begin() + (id + 1) * cols);
  }
  checker.Compare(
      std::string("embed ") + kernels::WeightTypeName(table.tensor.type),
      checker.Download(out, want.size()), want, kFloatLimit);
}

}  // namespace

void CheckProducts(Checker& checker) {
  kernels::Limits limits;
  limits.max_rows = kMostRows;
  limits.max_cols = 512;
  limits.max_positions = 16;
  checker.Expect(checker.backend().Prepare(limits));
  for (const WeightType type : kernels::kSelfTestTypes) {
    Random random(100 + static_cast<int>(type));
    std::vector<OwnedTensor> parts;
    parts.push_back(RandomTensor(random, type, kOutputs, 512));
    Product(checker, std::string("product ") + kernels::WeightTypeName(type),
            parts, random);
    Embedding(checker, parts[0]);
    checker.Release();
  }
  // Rows that no vector divides, parts of different types, rows in an order.
  Random random(99);
  for (const WeightType type :
       {WeightType::kBF16, WeightType::kF32, WeightType::kF16}) {
    std::vector<OwnedTensor> odd;
    odd.push_back(RandomTensor(random, type, 33, 301));
    Product(checker,
            std::string("odd product ") + kernels::WeightTypeName(type), odd,
            random);
  }
  std::vector<OwnedTensor> joined;
  joined.push_back(RandomTensor(random, WeightType::kQ4_K, 40, 256));
  joined.push_back(RandomTensor(random, WeightType::kQ6_K, 24, 256));
  joined[0].tensor.row_order.resize(40);
  for (int i = 0; i < 40; ++i) joined[0].tensor.row_order[i] = i * 7 % 40;
  Product(checker, "joined product", joined, random);
}

}  // namespace holdfast::gpu_check
