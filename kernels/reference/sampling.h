// Double-precision twins of picking tokens from logits.
#ifndef HOLDFAST_KERNELS_REFERENCE_SAMPLING_H_
#define HOLDFAST_KERNELS_REFERENCE_SAMPLING_H_

#include <span>
#include <vector>

namespace holdfast::kernels::reference {

// The ids of the `count` largest, best first, of equals the lower first.
std::vector<int> LargestLogits(std::span<const float> logits, int count);

// exp((logit - largest) / temperature) of each.
std::vector<double> SoftmaxWeights(std::span<const float> logits,
                                   double temperature);

// How many of the sorted weights are needed for top_p of the total; -1: all of
// them are too few.
int KeptByTopP(std::span<const double> sorted, double total, double top_p);

}  // namespace holdfast::kernels::reference

#endif  // HOLDFAST_KERNELS_REFERENCE_SAMPLING_H_
