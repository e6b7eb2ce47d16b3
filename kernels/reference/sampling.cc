#include "kernels/reference/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace holdfast::kernels::reference {

std::vector<int> LargestLogits(std::span<const float> logits, int count) {
  std::vector<int> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int a, int b) { return logits[a] > logits[b]; });
  ids.resize(count);
  return ids;
}

std::vector<double> SoftmaxWeights(std::span<const float> logits,
                                   double temperature) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights;
  for (const float logit : logits) {
    weights.push_back(std::exp((logit - largest) / temperature));
  }
  return weights;
}

int KeptByTopP(std::span<const double> sorted, double total, double top_p) {
  double sum = 0;
  for (std::size_t n = 0; n < sorted.size(); ++n) {
    sum += sorted[n];
    if (sum >= top_p * total) return static_cast<int>(n) + 1;
  }
  return -1;
}

}  // namespace holdfast::kernels::reference
