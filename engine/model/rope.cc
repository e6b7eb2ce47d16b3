#include "engine/model/rope.h"

#include <cstddef>

#include "kernels/portable_math.h"

namespace holdfast::model {
namespace {

// Long waves are stretched by the factor, short ones kept, those between
// interpolated; float steps in the reference's order.
float ScaleLlama3(const RopeConfig& config, float frequency) {
  constexpr double kTwoPi = 6.283185307179586;
  const float wave = static_cast<float>(kTwoPi) / frequency;
  const double low_wave = config.original_context / config.low_freq_factor;
  const double high_wave = config.original_context / config.high_freq_factor;
  const float factor = static_cast<float>(config.factor);
  if (wave > static_cast<float>(low_wave)) return frequency / factor;
  if (wave < static_cast<float>(high_wave)) return frequency;
  const float smooth =
      (static_cast<float>(config.original_context) / wave -
       static_cast<float>(config.low_freq_factor)) /
      static_cast<float>(config.high_freq_factor - config.low_freq_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::vector<float> InverseFrequencies(const RopeConfig& config, int rotary_dims,
                                      std::span<const float> divisors) {
  std::vector<float> frequencies(static_cast<std::size_t>(rotary_dims / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent =
        static_cast<float>(2 * i) / static_cast<float>(rotary_dims);
    float frequency = 1.0f / static_cast<float>(kernels::portable::Pow(
                                 config.theta, exponent));
    if (config.scaling == RopeConfig::Scaling::kLinear) {
      frequency /= static_cast<float>(config.factor);
    } else if (config.scaling == RopeConfig::Scaling::kLlama3) {
      frequency = ScaleLlama3(config, frequency);
    }
    if (!divisors.empty()) frequency /= divisors[i];
    frequencies[i] = frequency;
  }
  return frequencies;
}

}  // namespace holdfast::model
