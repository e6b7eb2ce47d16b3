// Log-probabilities of the unmodified distribution.
#ifndef HOLDFAST_ENGINE_SAMPLING_LOGPROBS_H_
#define HOLDFAST_ENGINE_SAMPLING_LOGPROBS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace holdfast::engine {

struct TokenLogprob {
  std::int32_t id = 0;
  float logprob = 0;
};

struct Logprobs {
  float chosen = 0;
  std::vector<TokenLogprob> top;  // best first, the lower id of equals first
};

// Natural logarithms; the sum over the vocabulary goes by ascending id. All
// logits must be finite. Pure.
Logprobs ComputeLogprobs(std::span<const float> logits, std::int32_t chosen,
                         int top);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SAMPLING_LOGPROBS_H_
