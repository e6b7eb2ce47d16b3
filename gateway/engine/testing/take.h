// What a thread of a test promised, waited for no longer than a test may take.
#ifndef HOLDFAST_GATEWAY_ENGINE_TESTING_TAKE_H_
#define HOLDFAST_GATEWAY_ENGINE_TESTING_TAKE_H_

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <source_location>

namespace holdfast::gateway::testing {

// Longer than any wait inside what is tested.
inline constexpr std::chrono::seconds kTakeDeadline{30};

// The future's value. Past the deadline the program ends and names the place:
// the thread that was waited for still uses what the test owns, so the test
// cannot go on or unwind.
template <typename Future>
auto Take(Future future,
          std::source_location place = std::source_location::current()) {
  if (future.wait_for(kTakeDeadline) != std::future_status::ready) {
    std::fprintf(stderr, "%s:%u: nothing came within %lld s\n",
                 place.file_name(), static_cast<unsigned>(place.line()),
                 static_cast<long long>(kTakeDeadline.count()));
    std::abort();
  }
  return future.get();
}

}  // namespace holdfast::gateway::testing

#endif  // HOLDFAST_GATEWAY_ENGINE_TESTING_TAKE_H_
