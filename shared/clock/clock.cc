#include "shared/clock/clock.h"

#include <thread>

namespace holdfast {
namespace {

class Steady final : public Clock {
 public:
  std::chrono::steady_clock::time_point Now() override {
    return std::chrono::steady_clock::now();
  }
  void SleepUntil(std::chrono::steady_clock::time_point until) override {
    std::this_thread::sleep_until(until);
  }
};

}  // namespace

Clock& SteadyClock() {
  static Steady* const instance = new Steady;
  return *instance;
}

}  // namespace holdfast
