// Which rows and states a cold run would have computed too.
#ifndef HOLDFAST_ENGINE_POOL_PROVENANCE_H_
#define HOLDFAST_ENGINE_POOL_PROVENANCE_H_

#include <limits>

namespace holdfast::engine {

enum class Provenance {
  kGrid,     // what a cold run computes: anyone may use it
  kSession,  // all else: only the conversation that made it may
};

// The taint of a sequence is its lowest row of provenance `session`: every row
// at or above it, and every copy of the sections at a position above it, is
// `session`. This is the taint of a sequence that has none.
inline constexpr int kUntainted = std::numeric_limits<int>::max();

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_POOL_PROVENANCE_H_
