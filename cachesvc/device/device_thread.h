// The thread of all device calls. Any of them may never return.
#ifndef HOLDFAST_CACHESVC_DEVICE_DEVICE_THREAD_H_
#define HOLDFAST_CACHESVC_DEVICE_DEVICE_THREAD_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "shared/clock/clock.h"

namespace holdfast::cachesvc {

// Work in order; thread-safe. What waits is bounded by who gives it: a call
// waits for its own, and there is one end for each beginning.
class DeviceQueue {
 public:
  // False: not done by the deadline. It may still be run, so it owns what it
  // refers to.
  bool Run(std::function<void()> work, Deadline deadline);
  // Behind all that was given before. After Stop(): dropped, on this thread.
  void Post(std::function<void()> work);

 private:
  friend class DeviceThread;

  void Serve();
  // True: everything has ended.
  bool Stop(Deadline deadline);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;  // guarded by mutex_, like all below
  std::uint64_t given_ = 0;
  std::uint64_t done_ = 0;
  bool stopping_ = false;
  bool ended_ = false;
};

// Its end waits at most deadlines::kDeviceStop; a thread that hangs then is
// left behind.
class DeviceThread {
 public:
  DeviceThread();
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  const std::shared_ptr<DeviceQueue>& queue() const { return queue_; }

 private:
  const std::shared_ptr<DeviceQueue> queue_ = std::make_shared<DeviceQueue>();
  std::thread thread_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_DEVICE_DEVICE_THREAD_H_
