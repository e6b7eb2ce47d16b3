// The filters and the draw, over candidates in the order of their rank. One
// text for the host and for a device's kernel, so that they choose the same.
#ifndef HOLDFAST_KERNELS_SAMPLING_RANKED_DRAW_H_
#define HOLDFAST_KERNELS_SAMPLING_RANKED_DRAW_H_

#include "kernels/sampling/exact_exp.h"
#include "kernels/sampling/token_choice.h"

namespace holdfast::kernels {

// The sum of a vocabulary's weights has a fixed order: slices of kSliceIds ids,
// in each kSliceLanes lanes (lane = index mod lanes) that ascend, then halves
// of lanes added until one is left; slices ascend.
inline constexpr int kSliceIds = 2048;
inline constexpr int kSliceLanes = 256;

// 1 for the largest. The difference is exact in double, so no other logit's
// weight is 1 by rounding alone.
constexpr double TokenWeight(float logit, float largest, float temperature) {
  return ExactExp((static_cast<double>(logit) - static_cast<double>(largest)) /
                  static_cast<double>(temperature));
}

// Whether top_k leaves out anything: then the sum of all weights is not needed.
constexpr bool CutsToTopK(const TokenChoice& choice, int vocab) {
  return choice.top_k > 0 && choice.top_k < vocab;
}

inline constexpr int kTooFewCandidates = -1;

// The rank of the token drawn. `ranked.Has(n)` says whether the candidate of
// rank n is known, `ranked.Weight(n)` its weight; `total`: of the whole
// vocabulary. kTooFewCandidates: one was needed that is not known.
template <typename Ranked>
constexpr int DrawRank(Ranked& ranked, int vocab, double total,
                       const TokenChoice& choice) {
  int count = vocab;
  if (CutsToTopK(choice, vocab)) {
    count = choice.top_k;
    if (!ranked.Has(count - 1)) return kTooFewCandidates;
    total = 0;
    for (int n = 0; n < count; ++n) total += ranked.Weight(n);
  }
  if (choice.top_p < 1.0f) {
    const double enough = static_cast<double>(choice.top_p) * total;
    double sum = 0;
    int n = 0;
    while (sum < enough && n < count) {
      if (!ranked.Has(n)) return kTooFewCandidates;
      sum += ranked.Weight(n++);
    }
    count = n;
    total = sum;
  }
  if (choice.min_p > 0.0f) {  // the best weight is 1
    double sum = 0;
    int n = 0;
    while (n < count) {
      if (!ranked.Has(n)) return kTooFewCandidates;
      const double weight = ranked.Weight(n);
      if (weight < static_cast<double>(choice.min_p)) break;
      sum += weight;
      ++n;
    }
    count = n;
    total = sum;
  }
  const double target = choice.uniform * total;
  double sum = 0;
  for (int n = 0; n < count; ++n) {
    if (!ranked.Has(n)) return kTooFewCandidates;
    sum += ranked.Weight(n);
    if (sum > target) return n;
  }
  return count - 1;  // the sums' last rounding
}

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_SAMPLING_RANKED_DRAW_H_
