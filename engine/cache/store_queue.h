// Stores under way to the cache service.
#ifndef HOLDFAST_ENGINE_CACHE_STORE_QUEUE_H_
#define HOLDFAST_ENGINE_CACHE_STORE_QUEUE_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/cache/tiers.h"
#include "shared/attach/attach_client.h"

namespace grpc {
class ClientContext;
}

namespace holdfast::engine {

// Owns a thread that sends one store at a time and waits for its end, so that
// nobody else does. Bounded: a store that finds the queue full is dropped.
// Thread-safe. The destructor ends what is under way and drops what waits;
// every store has been told its outcome then.
class StoreQueue {
 public:
  static constexpr std::size_t kMostWaiting = 32;

  // `client` outlives the queue.
  explicit StoreQueue(const attach::AttachClient& client);
  ~StoreQueue();

  void Add(StoreJob job, std::function<void(StoreOutcome)> done);

 private:
  struct Waiting {
    StoreJob job;
    std::function<void(StoreOutcome)> done;
  };

  void Run();
  StoreOutcome Send(const StoreJob& job);

  const attach::AttachClient& client_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;             // guarded by mutex_
  grpc::ClientContext* calling_ = nullptr;  // guarded by mutex_
  bool stopping_ = false;                   // guarded by mutex_
  std::thread thread_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_STORE_QUEUE_H_
