// A seat: one request runs on it at a time, and its conversation stays there.
#ifndef HOLDFAST_ENGINE_SCHEDULER_SEAT_H_
#define HOLDFAST_ENGINE_SCHEDULER_SEAT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/resume/sequence.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {

// The engine thread's.
struct Seat {
  // The last conversation it ran that was no scratch request. While a request
  // runs here it is the one before.
  std::optional<Sequence> resident;
  // When the resident was kept (EngineState::NextUse); 0: there never was one.
  std::uint64_t last_use = 0;
  bool taken = false;  // a request runs here
};

// The seat for a request; null when all are taken. Of those whose resident it
// goes on with, the one that shares the longest prefix; else an empty one; else
// the one used longest ago. It goes on with a resident when it shares at least
// half of its rows, or a block and its session key: what two conversations
// have in common, a system prompt say, is taken from any seat and is no reason
// to displace one.
Seat* ChooseSeat(std::vector<Seat>& seats, const PrefixKey& root,
                 std::span<const KeyId> prompt, std::string_view session_key);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_SEAT_H_
