#include <cmath>

#include "kernels/reference/reference.h"
#include "tests/gpu/checks.h"

namespace holdfast::gpu_check {
namespace {

using kernels::MoeShape;
using kernels::WeightType;
using kernels::reference::Numbers;

void Run(Checker& checker, const MoeShape& shape, WeightType type,
         bool split_gate, int most_rows, const std::string& name) {
  auto& backend = checker.backend();
  kernels::Limits limits;
  limits.max_rows = most_rows;
  limits.max_positions = 16;
  limits.moe = shape;
  checker.Expect(backend.Prepare(limits));
  Random random(11);
  std::vector<std::unique_ptr<kernels::Matrix>> matrices;
  std::vector<kernels::ExpertWeights> experts;
  std::vector<kernels::reference::Expert> twins;
  for (int e = 0; e < shape.experts; ++e) {
    std::vector<OwnedTensor> parts;
    if (split_gate) {
      parts.push_back(RandomTensor(random, type, shape.ffn, shape.hidden));
      parts.push_back(RandomTensor(random, type, shape.ffn, shape.hidden));
    } else {
      parts.push_back(RandomTensor(random, type, 2 * shape.ffn, shape.hidden));
    }
    const OwnedTensor down =
        RandomTensor(random, type, shape.hidden, shape.ffn);
    kernels::reference::Expert twin;
    std::vector<kernels::WeightTensor> tensors;
    for (const OwnedTensor& part : parts) {
      tensors.push_back(part.tensor);
      const Numbers numbers = kernels::reference::Widen(part.tensor);
      twin.gate_up.insert(twin.gate_up.end(), numbers.begin(), numbers.end());
    }
    twin.down = kernels::reference::Widen(down.tensor);
    twins.push_back(std::move(twin));
    for (const auto& parts_of :
         {std::span<const kernels::WeightTensor>(tensors),
          std::span<const kernels::WeightTensor>(&down.tensor, 1)}) {
      auto packed = backend.PackMatrix(parts_of);
      if (!packed.ok()) return checker.Expect(packed.status());
      matrices.push_back(*std::move(packed));
    }
    experts.push_back({matrices[2 * e].get(), matrices[2 * e + 1].get()});
  }
  const int stride = shape.experts + 1;
  for (const int rows : {1, 5, most_rows}) {
    auto logits = random.Floats(std::size_t(rows) * stride, 3.0f);
    // All rows want the last expert: of many, more than a tile holds.
    for (int r = 0; r < rows; ++r)
      logits[r * stride + shape.experts - 1] = 4.0f;
    const auto x = random.Floats(std::size_t(rows) * shape.hidden);
    const std::size_t count = std::size_t(rows) * shape.hidden;
    float* const out = checker.Upload(std::vector<float>(count));
    backend.MoeExperts(shape, experts, checker.Upload(logits), stride,
                       checker.Upload(x), rows, out);
    Numbers want;
    for (int r = 0; r < rows; ++r) {
      const Numbers row = kernels::reference::MoeExperts(
          shape, twins,
          Numbers(&logits[r * stride], &logits[r * stride] + shape.experts),
          Numbers(&x[r * shape.hidden], &x[r * shape.hidden] + shape.hidden));
      want.insert(want.end(), row.begin(), row.end());
    }
    checker.Compare(name + " x " + std::to_string(rows),
                    checker.Download(out, count), want,
                    rows <= 8 ? kFloatLimit : kBf16Limit);
  }
  checker.Release();
}

}  // namespace

void CheckExperts(Checker& checker) {
  Run(checker, {9, 3, true, 64, 72}, WeightType::kBF16, false, 70,
      "experts BF16");
  Run(checker, {6, 2, false, 256, 256}, WeightType::kQ4_K, true, 11,
      "experts Q4_K");
  Run(checker, {40, 8, true, 40, 40}, WeightType::kF32, false, 9,
      "experts F32");
  Run(checker, {5, 2, true, 128, 128}, WeightType::kF8E4M3, false, 11,
      "experts F8_E4M3");
  Run(checker, {5, 2, true, 64, 96}, WeightType::kQ8_0, true, 11,
      "experts Q8_0");
  Run(checker, {5, 2, true, 64, 32}, WeightType::kQ4_1, false, 11,
      "experts Q4_1");
}

}  // namespace holdfast::gpu_check
