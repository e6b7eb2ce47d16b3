// The next token, as a pure function of logits, prompt ids, output ids,
// parameters and output index: equal inputs give equal tokens on every machine.
//
// Order of the steps: repetition, presence and frequency penalties, logit bias,
// temperature, top_k, top_p, min_p, then one draw. Each filter works on what
// the one before it left. Of equal logits the lower id comes first, everywhere.
#ifndef HOLDFAST_ENGINE_SAMPLING_SAMPLER_H_
#define HOLDFAST_ENGINE_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/sampling/token_choice.h"
#include "kernels/sampling/token_chooser.h"

namespace holdfast::engine {

struct SamplingParams {
  float temperature = 0;  // 0: the largest logit
  int top_k = 0;          // 0: off
  float top_p = 1;        // 1: off
  float min_p = 0;        // 0: off
  std::uint64_t seed = 0;
  // Divides positive and multiplies negative logits of ids in prompt or output.
  float repetition_penalty = 1;
  float presence_penalty = 0;   // subtracted once from ids in the output
  float frequency_penalty = 0;  // subtracted per occurrence in the output
  std::vector<std::pair<std::int32_t, float>> logit_bias = {};

  // Everything in range and every id below vocab_size; the error names the
  // field.
  absl::Status Validate(int vocab_size) const;
};

// Holds work space for one vocabulary, no state: Sample is pure. Not
// thread-safe.
class Sampler {
 public:
  explicit Sampler(int vocab_size);

  // All logits must be finite (AllFinite). output_ids.size() is the index of
  // the token asked for.
  std::int32_t Sample(std::span<const float> logits,
                      std::span<const std::int32_t> prompt_ids,
                      std::span<const std::int32_t> output_ids,
                      const SamplingParams& params);

 private:
  std::span<const float> Adjust(std::span<const float> logits,
                                std::span<const std::int32_t> prompt_ids,
                                std::span<const std::int32_t> output_ids,
                                const SamplingParams& params);

  std::vector<float> adjusted_;
  std::vector<std::int32_t> counts_;  // zeros between calls
  kernels::TokenChooser chooser_;
};

// What a backend needs to choose the token of that output index as Sample
// would. None where logits are changed first (penalties, logit_bias): that
// takes the ids of prompt and output, which are the host's.
std::optional<kernels::TokenChoice> ChoiceFromLogits(
    const SamplingParams& params, std::uint64_t output_index);

bool AllFinite(std::span<const float> values);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SAMPLING_SAMPLER_H_
