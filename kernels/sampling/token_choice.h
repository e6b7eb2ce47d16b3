// How a token is chosen from a row of logits, by the host or by a device.
#ifndef HOLDFAST_KERNELS_SAMPLING_TOKEN_CHOICE_H_
#define HOLDFAST_KERNELS_SAMPLING_TOKEN_CHOICE_H_

#include <cstdint>

namespace holdfast::kernels {

// Temperature, then top_k, top_p and min_p, each on what the one before left,
// then one draw. Of equal logits the lower id comes first.
struct TokenChoice {
  float temperature = 0;  // 0: the largest logit
  int top_k = 0;          // 0: off
  float top_p = 1;        // above 0; 1: off
  float min_p = 0;        // at most 1; 0: off
  double uniform = 0;     // in [0, 1): what is drawn
};

struct ChosenToken {
  enum class Outcome : std::int32_t {
    kChosen,
    kUndecided,  // more candidates would have to be looked at
    kNotFinite,  // a logit is
  };
  std::int32_t id = 0;
  Outcome outcome = Outcome::kUndecided;
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_SAMPLING_TOKEN_CHOICE_H_
