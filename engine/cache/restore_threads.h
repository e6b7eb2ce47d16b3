// Threads that read restores.
#ifndef HOLDFAST_ENGINE_CACHE_RESTORE_THREADS_H_
#define HOLDFAST_ENGINE_CACHE_RESTORE_THREADS_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/cache/restore_call.h"

namespace holdfast::engine {

// Started as they are needed, up to as many as read at once; what comes then
// waits, under its own deadline. There are no more than the engine has seats.
// Thread-safe. The destructor abandons all and waits for them.
class RestoreThreads {
 public:
  static constexpr std::size_t kMost = 8;

  RestoreThreads() = default;
  ~RestoreThreads();
  RestoreThreads(const RestoreThreads&) = delete;
  RestoreThreads& operator=(const RestoreThreads&) = delete;

  void Add(std::shared_ptr<RestoreCall> call);

 private:
  void ThreadMain();

  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<RestoreCall>> waiting_;
  std::vector<std::shared_ptr<RestoreCall>> running_;
  std::size_t idle_ = 0;  // threads
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_RESTORE_THREADS_H_
