#include "engine/sampling/logprobs.h"

#include <algorithm>

#include "kernels/portable_math.h"
#include "kernels/sampling/exact_exp.h"
#include "kernels/sampling/token_chooser.h"

namespace holdfast::engine {
namespace {

// The `count` best ids by insertion: count is at most 20.
std::vector<std::int32_t> Best(std::span<const float> logits, int count) {
  std::vector<std::int32_t> best;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const bool full = static_cast<int>(best.size()) == count;
    if (full && logits[i] <= logits[best.back()]) continue;
    if (full) best.pop_back();
    const auto id = static_cast<std::int32_t>(i);
    const auto place = std::ranges::find_if(
        best, [&](std::int32_t other) { return logits[other] < logits[id]; });
    best.insert(place, id);
  }
  return best;
}

}  // namespace

Logprobs ComputeLogprobs(std::span<const float> logits, std::int32_t chosen,
                         int top) {
  const double largest = logits[kernels::ArgMax(logits)];
  double sum = 0;
  for (float logit : logits) sum += kernels::ExactExp(logit - largest);
  const double log_sum = kernels::portable::Log(sum);
  const auto logprob = [&](std::int32_t id) {
    return static_cast<float>((logits[id] - largest) - log_sum);
  };
  Logprobs result{.chosen = logprob(chosen), .top = {}};
  if (top > 0) {
    for (std::int32_t id : Best(logits, top)) {
      result.top.push_back({.id = id, .logprob = logprob(id)});
    }
  }
  return result;
}

}  // namespace holdfast::engine
