#include "engine/sampling/sampler.h"

#include <algorithm>
#include <bit>

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

kernels::TokenChoice Choice(const SamplingParams& params,
                            std::uint64_t output_index) {
  return {.temperature = params.temperature,
          .top_k = params.top_k,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .uniform = UniformAt(params.seed, output_index)};
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

Sampler::Sampler(int vocab_size)
    : adjusted_(vocab_size), counts_(vocab_size), chooser_(vocab_size) {}

std::int32_t Sampler::Sample(std::span<const float> logits,
                             std::span<const std::int32_t> prompt_ids,
                             std::span<const std::int32_t> output_ids,
                             const SamplingParams& params) {
  const auto adjusted = Adjust(logits, prompt_ids, output_ids, params);
  return chooser_.Choose(adjusted, Choice(params, output_ids.size()));
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

std::optional<kernels::TokenChoice> ChoiceFromLogits(
    const SamplingParams& params, std::uint64_t output_index) {
  if (params.repetition_penalty != 1 || params.presence_penalty != 0 ||
      params.frequency_penalty != 0 || !params.logit_bias.empty()) {
    return std::nullopt;
  }
  return Choice(params, output_index);
}

}  // namespace holdfast::engine
