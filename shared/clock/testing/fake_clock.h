// A clock that stands still until a test, or a sleeper, moves it.
#ifndef HOLDFAST_SHARED_CLOCK_TESTING_FAKE_CLOCK_H_
#define HOLDFAST_SHARED_CLOCK_TESTING_FAKE_CLOCK_H_

#include <algorithm>
#include <chrono>
#include <mutex>

#include "shared/clock/clock.h"

namespace holdfast::testing {

class FakeClock final : public Clock {
 public:
  std::chrono::steady_clock::time_point Now() override {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  // Sleeping takes no time: the clock jumps.
  void SleepUntil(std::chrono::steady_clock::time_point until) override {
    const std::lock_guard lock(mutex_);
    now_ = std::max(now_, until);
  }
  void Advance(std::chrono::steady_clock::duration by) {
    const std::lock_guard lock(mutex_);
    now_ += by;
  }

 private:
  std::mutex mutex_;
  // Not the epoch, so that what is measured from it shows; and the machine's
  // own time, so that deadlines made from this clock also hold for waits that
  // run on the machine's.
  std::chrono::steady_clock::time_point now_ = std::chrono::steady_clock::now();
};

}  // namespace holdfast::testing

#endif  // HOLDFAST_SHARED_CLOCK_TESTING_FAKE_CLOCK_H_
