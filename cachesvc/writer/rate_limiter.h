// Spreads bytes over time.
#ifndef HOLDFAST_CACHESVC_WRITER_RATE_LIMITER_H_
#define HOLDFAST_CACHESVC_WRITER_RATE_LIMITER_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace holdfast::cachesvc {

// Pure; the caller waits. Not thread-safe.
class RateLimiter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // 0: no limit. Up to a second's bytes may go at once after a pause.
  explicit RateLimiter(std::uint64_t bytes_per_second)
      : rate_(bytes_per_second) {}

  // When `bytes` may be written, for a writer that asks at `now`; what they
  // take of the rate is taken.
  Time Reserve(std::uint64_t bytes, Time now) {
    if (rate_ == 0) return now;
    free_ = std::max(free_, now - std::chrono::seconds(1));
    const Time start = std::max(free_, now);
    free_ += std::chrono::nanoseconds(static_cast<std::int64_t>(
        static_cast<double>(bytes) * 1e9 / static_cast<double>(rate_)));
    return start;
  }

 private:
  const std::uint64_t rate_;
  Time free_{};  // everything reserved so far is written by then
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_WRITER_RATE_LIMITER_H_
