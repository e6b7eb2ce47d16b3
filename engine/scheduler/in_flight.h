// In-flight sharing: a prompt that another request is computing at this moment
// is waited for, not computed again.
#ifndef HOLDFAST_ENGINE_SCHEDULER_IN_FLIGHT_H_
#define HOLDFAST_ENGINE_SCHEDULER_IN_FLIGHT_H_

#include <chrono>
#include <span>

#include "engine/resume/grid_rule.h"
#include "engine/resume/sequence.h"

namespace holdfast::engine {

// A prompt that is being computed: the owner's.
struct PromptInFlight {
  std::span<const KeyId> prompt;
  int rows = 0;  // it has so far
};

// Where `prompt`, which the pool alone lets start at `in_place`, goes on from
// the owner's rows: the position that the owner must reach and leave an anchor
// at, past its rows. 0: the owner does not compute the next blocks of this
// prompt, or less than a block of them. Both have the same root. Pure.
int WaitPosition(const GridRule& rule, const PromptInFlight& owner,
                 std::span<const KeyId> prompt, int in_place);

// Whether an owner gets on: late when it has finished no chunk within twice the
// time predicted for one.
class ChunkWatch {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  ChunkWatch(int chunk_tokens, int rows, TimePoint now)
      : chunk_tokens_(chunk_tokens), rows_(rows), since_(now) {}

  // `rows`: the owner's now; `chunk_seconds`: predicted of its next chunk.
  bool Late(int rows, double chunk_seconds, TimePoint now);

 private:
  int chunk_tokens_;
  int rows_;  // when its newest chunk was finished
  TimePoint since_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_IN_FLIGHT_H_
