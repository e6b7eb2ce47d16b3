// A lock whose wait has a deadline, held over I/O.
#ifndef HOLDFAST_CACHESVC_STORE_GATE_H_
#define HOLDFAST_CACHESVC_STORE_GATE_H_

#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "shared/clock/clock.h"

namespace holdfast::cachesvc {

class Gate {
 public:
  // Open again when this is destroyed. Movable.
  class Pass {
   public:
    explicit Pass(Gate* gate) : gate_(gate) {}
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass() {
      if (gate_ != nullptr) gate_->Leave();
    }

   private:
    Gate* gate_;
  };

  // DeadlineExceeded when another stayed in it until then.
  absl::StatusOr<Pass> Enter(Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline, [&] { return !taken_; })) {
      return absl::DeadlineExceededError(
          "another change under way did not end in time");
    }
    taken_ = true;
    return Pass(this);
  }

 private:
  void Leave() {
    {
      const std::lock_guard lock(mutex_);
      taken_ = false;
    }
    changed_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool taken_ = false;  // guarded by mutex_
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_GATE_H_
