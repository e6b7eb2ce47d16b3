#include "kernels/reference/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace holdfast::kernels::reference {
namespace {

// Best first, of equals the lower first.
std::vector<int> SortedIds(std::span<const float> logits) {
  std::vector<int> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int a, int b) { return logits[a] > logits[b]; });
  return ids;
}

double Sum(std::span<const double> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

// Weights of sorted logits that the filters leave.
std::vector<double> KeptWeights(std::span<const float> logits,
                                std::span<const int> sorted,
                                const TokenChoice& choice) {
  std::vector<double> weights;
  const double largest = logits[sorted[0]];
  for (const int id : sorted) {
    weights.push_back(
        std::exp((logits[id] - largest) / double{choice.temperature}));
  }
  if (choice.top_k > 0 && std::size_t(choice.top_k) < weights.size()) {
    weights.resize(choice.top_k);
  }
  if (choice.top_p < 1) {
    const double enough = choice.top_p * Sum(weights);
    std::size_t count = 0;
    for (double sum = 0; sum < enough && count < weights.size();) {
      sum += weights[count++];
    }
    weights.resize(count);
  }
  while (weights.back() < choice.min_p) weights.pop_back();
  return weights;
}

}  // namespace

double OutsideShare(std::span<const float> logits, const TokenChoice& choice,
                    int id) {
  const std::vector<int> sorted = SortedIds(logits);
  const std::size_t rank = static_cast<std::size_t>(
      std::find(sorted.begin(), sorted.end(), id) - sorted.begin());
  if (choice.temperature == 0) return rank == 0 ? 0.0 : 1.0;
  const std::vector<double> weights = KeptWeights(logits, sorted, choice);
  if (rank >= weights.size()) return 1.0;
  const double total = Sum(weights);
  const double from = Sum(std::span(weights).first(rank)) / total;
  const double to = from + weights[rank] / total;
  return std::max({0.0, from - choice.uniform, choice.uniform - to});
}

}  // namespace holdfast::kernels::reference
