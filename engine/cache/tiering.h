// All that an engine has beyond its pool.
#ifndef HOLDFAST_ENGINE_CACHE_TIERING_H_
#define HOLDFAST_ENGINE_CACHE_TIERING_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "engine/cache/doorbell.h"
#include "engine/cache/leases.h"
#include "engine/cache/lending.h"
#include "engine/cache/planner_costs.h"
#include "engine/cache/tier_plan.h"
#include "engine/cache/tiers.h"
#include "engine/cache/waiting_stores.h"
#include "engine/pool/block_pool.h"

namespace holdfast::engine {

// Why an offer that was tried did not serve.
enum class RestoreFailure {
  kGone,      // evicted meanwhile
  kCorrupt,   // a file failed a check
  kMismatch,  // other key ids
  kDeadline,
  kCancelled,
  kBlocks,  // the pool had no room
  kError,   // the cache service or the disk failed
};
inline constexpr int kRestoreFailures = 7;
const char* RestoreFailureName(RestoreFailure failure);

// Read by any thread.
struct TierCounters {
  std::atomic<std::uint64_t> lookups{0};
  std::atomic<std::uint64_t> late_lookups{0};
  // Conversations that lost rows before they were spilled: no room, or too
  // slow.
  std::atomic<std::uint64_t> lost_spills{0};
  std::atomic<int> stores_under_way{0};  // queued and not ended
  // Session records told to the cache service, and those that did not get
  // there.
  std::atomic<int> records_under_way{0};
  std::atomic<std::uint64_t> records_lost{0};
  // What spills are expected to reach; at first what a tired drive does.
  std::atomic<double> spill_bytes_per_s{3e8};
  // Of the state store, for the memory gate.
  std::atomic<std::uint64_t> store_freed_bytes{0};
  std::atomic<std::uint64_t> chose_in_place{0};  // of plans that had offers
  std::atomic<double> prefill_tokens_per_s{0};   // as reckoned with
  struct OfTier {
    // Of plans that had offers: how this tier's fared.
    std::atomic<std::uint64_t> chosen{0};
    std::atomic<std::uint64_t> lost{0};
    std::atomic<std::uint64_t> too_costly{0};
    std::atomic<double> read_bytes_per_s{0};  // as reckoned with
    std::atomic<std::uint64_t> restores{0};
    std::atomic<std::uint64_t> tokens{0};
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> microseconds{0};
    std::array<std::atomic<std::uint64_t>, kRestoreFailures> failed{};
    std::array<std::atomic<std::uint64_t>, kStoreOutcomes> stores{};
  };
  std::array<OfTier, kTiers> tiers;

  OfTier& of(Tier tier) { return tiers[static_cast<std::size_t>(tier)]; }
  void CountPlan(const TierPlan& plan);
  void NoteRates(const PlannerRates& rates);
  // A conversation of so many bytes was spilled within `seconds`. One thread.
  void MeasuredSpill(std::uint64_t bytes, double seconds);
};

// The engine thread's, but for the counters. What it refers to outlives it.
struct Tiering {
  // Lends the pool's own blocks.
  Tiering(CacheTiers& tiers, PlannerCosts& costs, std::byte* lease_table,
          BlockPool& pool)
      : Tiering(tiers, costs, lease_table, std::make_unique<Lending>(pool)) {}
  Tiering(CacheTiers& tiers, PlannerCosts& costs, std::byte* lease_table,
          std::unique_ptr<Lending> own_lending)
      : tiers(tiers),
        costs(costs),
        lending(std::move(own_lending)),
        leases(lease_table, lending->numbers()),
        waiting(lending->rows()) {}

  // Queues a store whose lease is granted; its outcome is counted, then told.
  void Store(StoreJob job, std::function<void(StoreOutcome)> then = {});

  // Returns when all that was queued or waits for room has ended, at the latest
  // at `deadline`.
  void AwaitStores(std::chrono::steady_clock::time_point deadline);

  CacheTiers& tiers;
  PlannerCosts& costs;
  const std::unique_ptr<Lending> lending;
  Leases leases;
  WaitingStores waiting;
  // Memory of the state store, which the machine is short of. False: there is
  // none to be had. Asks no more often than is of use.
  bool FreeStore(std::uint64_t bytes,
                 std::chrono::steady_clock::time_point now);
  // It had nothing left when it was asked last.
  std::chrono::steady_clock::time_point ask_store_after{};
  // As the cache service said last; larger snapshots are not offered to it.
  std::uint64_t store_entry_bytes = 0;
  // Shared with stores that are under way.
  const std::shared_ptr<TierCounters> counters =
      std::make_shared<TierCounters>();
  // Rings when a store has ended. The engine thread's own bell, where it has
  // one: there may be room for what waits.
  std::shared_ptr<Doorbell> ended = std::make_shared<Doorbell>();
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_TIERING_H_
