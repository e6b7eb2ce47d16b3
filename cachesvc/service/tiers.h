// What the service has to offer, for its calls.
#ifndef HOLDFAST_CACHESVC_SERVICE_TIERS_H_
#define HOLDFAST_CACHESVC_SERVICE_TIERS_H_

#include <mutex>
#include <string>

#include "cachesvc/disk/disk_tier.h"
#include "cachesvc/restore/restore_book.h"
#include "cachesvc/restore/staging_slots.h"
#include "cachesvc/statestore/state_store.h"

namespace holdfast::cachesvc {

// Counts of one tier. Thread-safe.
class TierUse {
 public:
  void Lookup() {
    const std::lock_guard lock(mutex_);
    ++use_.lookups;
  }
  void Hit(std::uint64_t tokens, std::uint64_t bytes, double ms) {
    const std::lock_guard lock(mutex_);
    ++use_.hits;
    use_.hit_tokens += tokens;
    use_.hit_bytes += bytes;
    use_.hit_ms += ms;
  }
  void Stored(std::uint64_t bytes, double ms) {
    const std::lock_guard lock(mutex_);
    ++use_.stores;
    use_.written_bytes += bytes;
    use_.write_ms += ms;
  }
  DiskUse get() const {
    const std::lock_guard lock(mutex_);
    return use_;
  }

 private:
  mutable std::mutex mutex_;
  DiskUse use_;  // guarded by mutex_
};

// Owned by the server; each part is thread-safe.
struct Tiers {
  explicit Tiers(StagingSlots& staging) : slots(staging), restores(staging) {}

  StagingSlots& slots;
  std::unique_ptr<StateStore> store;  // null: --store-gb=0
  std::uint64_t store_budget_bytes = 0;
  std::uint64_t store_entry_bytes = 0;
  TierUse store_use;
  std::unique_ptr<DiskTier> disk;  // null: nothing is kept on disk
  CostBook costs_in_memory{nullptr};
  CostBook& costs() {
    return disk != nullptr ? disk->costs() : costs_in_memory;
  }
  std::string disk_detail;  // why
  RestoreBook restores;     // destroyed first: it refers to both
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_SERVICE_TIERS_H_
