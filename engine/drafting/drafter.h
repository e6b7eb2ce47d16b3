// Guesses of what an answer says next.
#ifndef HOLDFAST_ENGINE_DRAFTING_DRAFTER_H_
#define HOLDFAST_ENGINE_DRAFTING_DRAFTER_H_

#include <cstdint>
#include <span>
#include <vector>

namespace holdfast::engine {

// The model checks a drafter's tokens in one step, behind the token that it
// forwards anyway, and keeps those that it takes itself: an answer has the same
// tokens and leaves the same rows and state with any drafter and without one.
// The engine thread's.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // Up to `most` ids below the model's vocabulary size that may come behind
  // `ids`, which are a prompt and its answer so far.
  virtual std::vector<std::int32_t> Draft(std::span<const std::int32_t> ids,
                                          int most) = 0;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_DRAFTING_DRAFTER_H_
