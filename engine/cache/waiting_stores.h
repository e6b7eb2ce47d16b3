// Conversations that are to be stored once there is room to lend them.
#ifndef HOLDFAST_ENGINE_CACHE_WAITING_STORES_H_
#define HOLDFAST_ENGINE_CACHE_WAITING_STORES_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

#include "engine/cache/tiers.h"
#include "engine/pool/block_pool.h"
#include "shared/aligned_buffer.h"

namespace holdfast::engine {

struct Tiering;

// Where rows are copied to be lent (Lending), several stores at once may fill
// that memory. One that must not be lost waits here, oldest first, with
// references to its rows and an image of the state behind the last. Bounded.
// The engine thread's.
class WaitingStores {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kMost = 8;

  struct Waiting {
    StoreJob job;               // without blocks, states and lease
    std::vector<BlockId> rows;  // of the pool, with a reference each
    StoredState kind = StoredState::kEnd;
    AlignedBuffer image;
    Time deadline;
    std::function<void(StoreOutcome)> done;  // called once
  };

  // `pool`, whose rows are meant, outlives this.
  explicit WaitingStores(BlockPool& pool) : pool_(pool) {}
  ~WaitingStores() { Clear(); }
  WaitingStores(const WaitingStores&) = delete;
  WaitingStores& operator=(const WaitingStores&) = delete;

  bool full() const { return waiting_.size() >= kMost; }
  bool empty() const { return waiting_.empty(); }
  // Takes the references over. Not when it is full.
  void Add(Waiting waiting);
  // Lends and stores those for which there is room by now, in order, so that a
  // long one is not overtaken for ever; requests wait for the leases
  // (Leases::Await). Those past their deadline are dropped.
  void Retry(Tiering& tiering, Time now);
  // All are dropped.
  void Clear();

 private:
  // False: there is no room yet.
  static bool Store(Tiering& tiering, Waiting& waiting, Time now);
  void Leave(Waiting& waiting);

  BlockPool& pool_;
  std::deque<Waiting> waiting_;  // oldest first
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_WAITING_STORES_H_
