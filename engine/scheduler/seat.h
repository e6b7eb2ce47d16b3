// A seat: one request runs on it at a time, and its conversation stays there.
#ifndef HOLDFAST_ENGINE_SCHEDULER_SEAT_H_
#define HOLDFAST_ENGINE_SCHEDULER_SEAT_H_

#include <cstdint>
#include <optional>

#include "engine/resume/sequence.h"

namespace holdfast::engine {

// The engine thread's.
struct Seat {
  // The last conversation it ran that was no scratch request. While a request
  // runs here it is the one before.
  std::optional<Sequence> resident;
  // When the resident was kept (EngineState::NextUse); 0: there never was one.
  std::uint64_t last_use = 0;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_SEAT_H_
