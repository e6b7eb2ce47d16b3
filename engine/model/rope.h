// Inverse frequencies of rotary position embeddings.
#ifndef HOLDFAST_ENGINE_MODEL_ROPE_H_
#define HOLDFAST_ENGINE_MODEL_ROPE_H_

#include <span>
#include <vector>

namespace holdfast::model {

struct RopeConfig {
  enum class Scaling { kNone, kLinear, kLlama3 };

  double theta = 10000;
  Scaling scaling = Scaling::kNone;
  double factor = 1;  // of kLinear and kLlama3; the rest: of kLlama3
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_context = 8192;  // tokens
};

// One for each pair of `rotary_dims` (even), rounded as Hugging Face's float
// arithmetic rounds them. `divisors`, when not empty, has one for each and
// divides them (GGUF's rope_freqs). No libm: equal bits everywhere.
std::vector<float> InverseFrequencies(const RopeConfig& config, int rotary_dims,
                                      std::span<const float> divisors);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_ROPE_H_
