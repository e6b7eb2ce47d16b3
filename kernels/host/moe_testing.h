// Experts with random weights, for tests.
#ifndef HOLDFAST_KERNELS_HOST_MOE_TESTING_H_
#define HOLDFAST_KERNELS_HOST_MOE_TESTING_H_

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/host/testing.h"
#include "kernels/reference/reference.h"

namespace holdfast::kernels::testing {

// A prepared backend with packed experts; weights of `type`.
struct MoeLayer {
  MoeLayer(const MoeShape& shape, WeightType type, int threads);

  // Router logits without equals in a row.
  std::vector<float> Logits(Random& random, int rows, int stride) const;
  // Rows in one launch; `out` starts as NaN.
  std::vector<float> Run(std::span<const float> logits, int stride,
                         std::span<const float> x) const;

  MoeShape shape;
  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<Matrix>> matrices;
  std::vector<ExpertWeights> experts;
  std::vector<reference::Expert> numbers;
};

}  // namespace holdfast::kernels::testing

#endif  // HOLDFAST_KERNELS_HOST_MOE_TESTING_H_
