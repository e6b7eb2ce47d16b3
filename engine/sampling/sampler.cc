#include "engine/sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "engine/sampling/exact_exp.h"
#include "engine/sampling/philox.h"
#include "fmt/format.h"

namespace holdfast::engine {
namespace {

absl::Status OutOfRange(const char* field, float value, const char* range) {
  return absl::InvalidArgumentError(
      fmt::format("{} is {}, must be {}", field, value, range));
}

bool Within(float value, float low, float high) {
  return value >= low && value <= high;  // false for NaN
}

}  // namespace

absl::Status SamplingParams::Validate(int vocab_size) const {
  if (!Within(temperature, 0, 100)) {
    return OutOfRange("temperature", temperature, "in 0 to 100");
  }
  if (top_k < 0) return OutOfRange("top_k", top_k, "0 or more");
  if (!Within(top_p, 0, 1) || top_p == 0) {
    return OutOfRange("top_p", top_p, "above 0 and at most 1");
  }
  if (!Within(min_p, 0, 1)) return OutOfRange("min_p", min_p, "in 0 to 1");
  if (!Within(repetition_penalty, 0.01f, 100)) {
    return OutOfRange("repetition_penalty", repetition_penalty,
                      "in 0.01 to 100");
  }
  if (!Within(presence_penalty, -100, 100)) {
    return OutOfRange("presence_penalty", presence_penalty, "in -100 to 100");
  }
  if (!Within(frequency_penalty, -100, 100)) {
    return OutOfRange("frequency_penalty", frequency_penalty, "in -100 to 100");
  }
  for (const auto& [id, bias] : logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return absl::InvalidArgumentError(fmt::format(
          "logit_bias names id {}, the vocabulary has {}", id, vocab_size));
    }
    if (!Within(bias, -1000, 1000)) {
      return OutOfRange("logit_bias", bias, "in -1000 to 1000");
    }
  }
  return absl::OkStatus();
}

bool AllFinite(std::span<const float> values) {
  // Without a branch a number, so that the loop is vectorised.
  std::uint32_t worst = 0;
  for (float value : values) {
    worst = std::max(worst, std::bit_cast<std::uint32_t>(value) & 0x7fffffffu);
  }
  return worst < 0x7f800000u;
}

std::int32_t ArgMax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) -
                                   logits.begin());
}

Sampler::Sampler(int vocab_size)
    : adjusted_(vocab_size), counts_(vocab_size), weights_(vocab_size) {}

std::int32_t Sampler::Sample(std::span<const float> logits,
                             std::span<const std::int32_t> prompt_ids,
                             std::span<const std::int32_t> output_ids,
                             const SamplingParams& params) {
  const auto adjusted = Adjust(logits, prompt_ids, output_ids, params);
  if (params.temperature == 0) return ArgMax(adjusted);
  return Draw(adjusted, params, UniformAt(params.seed, output_ids.size()));
}

std::span<const float> Sampler::Adjust(std::span<const float> logits,
                                       std::span<const std::int32_t> prompt_ids,
                                       std::span<const std::int32_t> output_ids,
                                       const SamplingParams& params) {
  const bool repetition = params.repetition_penalty != 1;
  const bool output =
      params.presence_penalty != 0 || params.frequency_penalty != 0;
  if (!repetition && !output && params.logit_bias.empty()) return logits;
  std::ranges::copy(logits, adjusted_.begin());
  if (repetition) {
    const auto penalize = [&](std::int32_t id) {
      if (counts_[id]++ > 0) return;
      float& logit = adjusted_[id];
      logit = logit > 0 ? logit / params.repetition_penalty
                        : logit * params.repetition_penalty;
    };
    std::ranges::for_each(prompt_ids, penalize);
    std::ranges::for_each(output_ids, penalize);
    for (std::int32_t id : prompt_ids) counts_[id] = 0;
    for (std::int32_t id : output_ids) counts_[id] = 0;
  }
  if (output) {
    for (std::int32_t id : output_ids) ++counts_[id];
    for (std::int32_t id : output_ids) {
      if (counts_[id] == 0) continue;  // done at an earlier occurrence
      adjusted_[id] -=
          params.presence_penalty +
          params.frequency_penalty * static_cast<float>(counts_[id]);
      counts_[id] = 0;
    }
  }
  for (const auto& [id, bias] : params.logit_bias) adjusted_[id] += bias;
  return adjusted_;
}

std::int32_t Sampler::Draw(std::span<const float> logits,
                           const SamplingParams& params, double uniform) {
  const float largest = logits[ArgMax(logits)];
  const double temperature = params.temperature;
  double total = 0;  // in ascending id
  for (std::size_t i = 0; i < logits.size(); ++i) {
    // The difference is exact in double, so it is 0 for the largest alone.
    weights_[i] = ExactExp(
        (static_cast<double>(logits[i]) - static_cast<double>(largest)) /
        temperature);
    total += weights_[i];
  }
  // A heap gives the candidates best first; few are looked at.
  heap_.resize(logits.size());
  std::iota(heap_.begin(), heap_.end(), 0);
  const auto worse = [&](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] < logits[b] : a > b;
  };
  std::ranges::make_heap(heap_, worse);
  kept_.clear();
  const auto next = [&] {
    std::ranges::pop_heap(heap_, worse);
    kept_.push_back(heap_.back());
    heap_.pop_back();
    return weights_[kept_.back()];
  };

  const std::size_t top_k = static_cast<std::size_t>(params.top_k);
  if (top_k > 0 && top_k < logits.size()) {
    total = 0;
    while (kept_.size() < top_k) total += next();
    heap_.clear();
  }
  if (params.top_p < 1) {
    const double enough = static_cast<double>(params.top_p) * total;
    double sum = 0;
    std::size_t n = 0;
    while (sum < enough && (n < kept_.size() || !heap_.empty())) {
      sum += n < kept_.size() ? weights_[kept_[n]] : next();
      ++n;
    }
    kept_.resize(n);
    heap_.clear();
    total = sum;
  }
  if (params.min_p > 0) {  // the best weight is 1
    while (!heap_.empty() && weights_[heap_.front()] >= params.min_p) next();
    heap_.clear();
    while (weights_[kept_.back()] < params.min_p) kept_.pop_back();
    total = 0;
    for (std::int32_t id : kept_) total += weights_[id];
  }
  const double target = uniform * total;
  double sum = 0;
  for (std::size_t n = 0;; ++n) {
    if (n == kept_.size()) {
      if (heap_.empty()) return kept_.back();  // the sums' last rounding
      next();
    }
    sum += weights_[kept_[n]];
    if (sum > target) return kept_[n];
  }
}

}  // namespace holdfast::engine
