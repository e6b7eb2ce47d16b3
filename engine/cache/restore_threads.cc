#include "engine/cache/restore_threads.h"

#include <algorithm>
#include <utility>

namespace holdfast::engine {

RestoreThreads::~RestoreThreads() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& call : running_) call->Abandon();
    waiting_.clear();
    threads = std::exchange(threads_, {});
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void RestoreThreads::Add(std::shared_ptr<RestoreCall> call) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(call));
    if (waiting_.size() > idle_ && threads_.size() < kMost) {
      threads_.emplace_back([this] { ThreadMain(); });
    }
  }
  changed_.notify_one();
}

void RestoreThreads::ThreadMain() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    --idle_;
    if (stopping_) return;
    const std::shared_ptr<RestoreCall> call = std::move(waiting_.front());
    waiting_.pop_front();
    running_.push_back(call);
    lock.unlock();
    call->Run();
    lock.lock();
    std::erase(running_, call);
  }
}

}  // namespace holdfast::engine
