// Pool blocks lent to the cache service (shared/attach/PROTOCOL.md, leases).
#ifndef HOLDFAST_ENGINE_CACHE_LEASES_H_
#define HOLDFAST_ENGINE_CACHE_LEASES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/cache/lent_blocks.h"
#include "engine/cache/tiers.h"
#include "engine/pool/block_pool.h"

namespace holdfast::engine {

// The table lies in the pool's memory behind the blocks; one page of it.
inline constexpr std::uint32_t kLeaseSlots = 64;
inline constexpr std::size_t kLeaseTableBytes = 4096;

// Leases that the cache service is done with; shared with those who wait for
// it. Thread-safe.
class LeaseReturns {
 public:
  void Add(const LeaseRef& lease) {
    const std::lock_guard lock(mutex_);
    leases_.push_back(lease);
  }
  std::vector<LeaseRef> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(leases_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<LeaseRef> leases_;  // guarded by mutex_
};

// Used by the engine thread. While a lease lasts its blocks have a reference,
// so the pool gives them to nobody.
class Leases {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `table` is aligned to 8 bytes; it and the pools outlive this.
  Leases(std::byte* table, const LentBlocks& numbers);
  ~Leases() { RevokeAll(); }
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;

  // Takes a reference to each block, named by its number. Nothing when every
  // slot is in use.
  std::optional<LeaseRef> Grant(std::vector<BlockId> blocks, Time deadline);
  // Where a lease goes back to, from any thread; it ends at the next Collect().
  // Outlives this.
  std::shared_ptr<LeaseReturns> returns() const { return returns_; }
  // Ends leases that were returned and those past their deadline.
  void Collect(Time now);
  // Requests wait for the blocks of this one, until it ends. Not of copies.
  void Await(const LeaseRef& lease);
  int awaited() const { return awaited_; }
  // Takes everything back at once: what is being stored is lost. Returns how
  // many leases ended.
  int RevokeAll();
  // The same of those alone that keep blocks from requests, which copies do
  // not, and that nobody awaits.
  int RevokePool();
  bool Lasts(const LeaseRef& lease) const;
  int live() const { return live_; }
  std::uint64_t revoked() const { return revoked_; }

 private:
  struct Slot {
    std::uint64_t generation = 0;  // 0: free
    std::vector<BlockId> blocks;
    Time deadline;
    bool awaited = false;
  };

  bool HoldsPool(const Slot& slot) const;
  void End(std::uint32_t slot);
  int Revoke(const std::function<bool(const Slot&)>& which);
  void Write(std::uint32_t slot, std::uint64_t generation);

  std::uint64_t* const table_;
  const LentBlocks numbers_;
  std::vector<Slot> slots_;
  std::uint64_t next_generation_ = 1;
  int live_ = 0;
  int awaited_ = 0;
  std::uint64_t revoked_ = 0;  // before they were returned
  const std::shared_ptr<LeaseReturns> returns_ =
      std::make_shared<LeaseReturns>();
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_LEASES_H_
