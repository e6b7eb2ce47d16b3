// Chooses tokens from logits in host memory.
#ifndef HOLDFAST_KERNELS_SAMPLING_TOKEN_CHOOSER_H_
#define HOLDFAST_KERNELS_SAMPLING_TOKEN_CHOOSER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling/token_choice.h"

namespace holdfast::kernels {

// The index of the largest, of equals the lowest.
std::int32_t ArgMax(std::span<const float> logits);

// Holds work space for a vocabulary, no state: Choose is a pure function. Not
// thread-safe.
class TokenChooser {
 public:
  explicit TokenChooser(int vocab_size);

  // All logits must be finite.
  std::int32_t Choose(std::span<const float> logits, const TokenChoice& choice);

 private:
  class Ranked;

  std::vector<std::int32_t> heap_;
  std::vector<std::int32_t> ranked_;  // taken off the heap
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_SAMPLING_TOKEN_CHOOSER_H_
