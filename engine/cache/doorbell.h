// What the engine thread sleeps on while all that it has to do is elsewhere.
#ifndef HOLDFAST_ENGINE_CACHE_DOORBELL_H_
#define HOLDFAST_ENGINE_CACHE_DOORBELL_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace holdfast::engine {

// Counts, so that no ring is lost between a look and a wait. Shared with those
// who ring: they may end later than who waits. Thread-safe.
class Doorbell {
 public:
  void Ring() {
    {
      const std::lock_guard lock(mutex_);
      ++rings_;
    }
    rung_.notify_all();
  }
  std::uint64_t rings() const {
    const std::lock_guard lock(mutex_);
    return rings_;
  }
  // Until there were more than `seen` rings, at most for `time`.
  void Wait(std::uint64_t seen, std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    rung_.wait_for(lock, time, [&] { return rings_ > seen; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable rung_;
  std::uint64_t rings_ = 0;  // guarded by mutex_
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_DOORBELL_H_
