// Time behind an interface, so that tests never wait for it.
#ifndef HOLDFAST_SHARED_CLOCK_CLOCK_H_
#define HOLDFAST_SHARED_CLOCK_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace holdfast {

using Deadline = std::chrono::steady_clock::time_point;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::chrono::steady_clock::time_point Now() = 0;
  // Returns at `until` or a little later.
  virtual void SleepUntil(std::chrono::steady_clock::time_point until) = 0;
};

// The machine's steady clock. Lives as long as the process.
Clock& SteadyClock();

// The age of everything in a cache folder: seconds that a service has been
// running on it, summed over all its runs. A jump of the wall clock, or a
// machine that was off for a year, expires nothing. The owner stores Seconds()
// every minute and hands it back at the next start: a crash loses a minute.
// Thread-safe; `clock` must outlive it.
class ServiceClock {
 public:
  ServiceClock(Clock& clock, std::uint64_t stored_seconds)
      : clock_(clock), start_(clock.Now()), stored_(stored_seconds) {}

  std::uint64_t Seconds() const {
    return stored_ + static_cast<std::uint64_t>(
                         std::chrono::duration_cast<std::chrono::seconds>(
                             clock_.Now() - start_)
                             .count());
  }
  Clock& clock() const { return clock_; }

 private:
  Clock& clock_;
  const std::chrono::steady_clock::time_point start_;
  const std::uint64_t stored_;
};

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_CLOCK_CLOCK_H_
