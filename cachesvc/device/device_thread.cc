#include "cachesvc/device/device_thread.h"

#include <utility>

#include "shared/deadlines.h"
#include "spdlog/spdlog.h"

namespace holdfast::cachesvc {

bool DeviceQueue::Run(std::function<void()> work, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (stopping_) return false;
  work_.push_back(std::move(work));
  const std::uint64_t mine = ++given_;
  changed_.notify_all();
  return changed_.wait_until(lock, deadline, [&] {
    return done_ >= mine || ended_;
  }) && done_ >= mine;
}

void DeviceQueue::Post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  work_.push_back(std::move(work));
  ++given_;
  changed_.notify_all();
}

void DeviceQueue::Serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !work_.empty(); });
    if (work_.empty()) break;
    std::function<void()> next = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    next();
    next = nullptr;  // what it owned goes before it counts as done
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
  ended_ = true;
  changed_.notify_all();
}

bool DeviceQueue::Stop(Deadline deadline) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  return changed_.wait_until(lock, deadline, [this] { return ended_; });
}

DeviceThread::DeviceThread() : thread_([queue = queue_] { queue->Serve(); }) {}

DeviceThread::~DeviceThread() {
  if (queue_->Stop(SteadyClock().Now() + deadlines::kDeviceStop)) {
    thread_.join();
    return;
  }
  spdlog::error("a call to the device does not return: its thread is left");
  thread_.detach();
}

}  // namespace holdfast::cachesvc
