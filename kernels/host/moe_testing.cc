#include "kernels/host/moe_testing.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace holdfast::kernels::testing {

MoeLayer::MoeLayer(const MoeShape& shape, WeightType type, int threads)
    : shape(shape), backend(MakeBackend(threads)) {
  Limits limits = TestLimits();
  limits.moe = shape;
  const Status status = backend->Prepare(limits);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::abort();
  }
  Random random(41);
  const auto pack = [&](int rows, int cols) {
    const OwnedTensor w = RandomTensor(random, type, rows, cols);
    matrices.push_back(backend->PackMatrix({&w.tensor, 1}).value());
    return reference::Widen(w.tensor);
  };
  for (int e = 0; e < shape.experts; ++e) {
    reference::Expert expert;
    expert.gate_up = pack(2 * shape.ffn, shape.hidden);
    expert.down = pack(shape.hidden, shape.ffn);
    numbers.push_back(std::move(expert));
    experts.push_back({matrices[2 * e].get(), matrices[2 * e + 1].get()});
  }
}

std::vector<float> MoeLayer::Logits(Random& random, int rows,
                                    int stride) const {
  std::vector<float> logits = random.Floats(rows * stride, 4.0f);
  for (int r = 0; r < rows; ++r) {
    // Far more apart than rounding: the lowest bits are the expert's id.
    for (int e = 0; e < shape.experts; ++e) {
      float& logit = logits[r * stride + e];
      logit = std::floor(logit * 64.0f) / 64.0f +
              static_cast<float>(e) / (64.0f * shape.experts);
    }
  }
  return logits;
}

std::vector<float> MoeLayer::Run(std::span<const float> logits, int stride,
                                 std::span<const float> x) const {
  const int rows = static_cast<int>(x.size()) / shape.hidden;
  std::vector<float> out(x.size(), NAN);
  backend->MoeExperts(shape, experts, logits.data(), stride, x.data(), rows,
                      out.data());
  return out;
}

}  // namespace holdfast::kernels::testing
