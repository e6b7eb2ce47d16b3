// The blocks of the pool and the index of cached prefixes.
//
// A block is free (nothing refers to it), used (sequences hold references) or
// cached (in the index, no references). The index names full blocks by chained
// prefix keys; a block that is in the index, or has more than one reference, is
// immutable. A block that has rows of provenance `session` never enters it.
// When no block is free, Allocate takes the least recently used
// cached block that ends its chain, so that a prefix never loses its middle;
// the block leaves the index before the caller may write it.
//
// Each reference has a retention class; a block is of the highest class that it
// has a reference of, so that what two conversations share is charged once. The
// pool counts, it does not decide: who holds what is engine/retention's.
//
// Owned and used by the engine thread alone.
#ifndef HOLDFAST_ENGINE_POOL_BLOCK_POOL_H_
#define HOLDFAST_ENGINE_POOL_BLOCK_POOL_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "engine/pool/provenance.h"
#include "engine/pool/retention_class.h"
#include "shared/clock/clock.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {

using BlockId = std::int32_t;
inline constexpr BlockId kNoBlock = -1;

class BlockPool {
 public:
  // Does a release count as a use? A reader that must leave no trace says no.
  enum class Touch { kYes, kNo };

  // Evicted blocks by the time since a request used them last: up to each
  // bound, in seconds, then the others.
  static constexpr std::array<double, 6> kAgeBounds = {1,   10,   60,
                                                       600, 3600, 86400};
  struct EvictionAges {
    std::array<std::uint64_t, kAgeBounds.size() + 1> blocks{};
    double seconds = 0;  // their sum
  };

  struct Counts {
    int free = 0;
    int used = 0;
    int cached = 0;
    std::uint64_t evictions = 0;
    int untouched = 0;  // of the free ones: never used, so without memory yet
    EvictionAges ages;
  };

  // `base` holds `blocks` x `block_bytes` bytes and outlives the pool. Only
  // addresses of it are taken, so it may be a device's memory. `clock` is asked
  // for ages alone.
  BlockPool(std::byte* base, std::size_t block_bytes, int blocks,
            Clock& clock = SteadyClock(), bool host_memory = true);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  int blocks() const { return static_cast<int>(meta_.size()); }
  std::size_t block_bytes() const { return block_bytes_; }
  bool host_memory() const { return host_memory_; }
  std::byte* data(BlockId block) const {
    return base_ + static_cast<std::size_t>(block) * block_bytes_;
  }
  int references(BlockId block) const { return meta_[block].references; }
  // kSession: at least one row in it is.
  Provenance provenance(BlockId block) const { return meta_[block].provenance; }
  Counts counts() const;
  // The highest class of its references; kNone when it has none.
  RetentionClass retention(BlockId block) const {
    return ClassOf(meta_[block]);
  }
  // Blocks of a class; of kNone: those that have only such references.
  int held(RetentionClass c) const { return held_[IndexOf(c)]; }

  // A writable block with one reference; kNoBlock when every block is used.
  BlockId Allocate(RetentionClass c = RetentionClass::kNone);
  // The same from free blocks alone: evicts nothing.
  BlockId AllocateFree(RetentionClass c = RetentionClass::kNone);
  void Ref(BlockId block, RetentionClass c = RetentionClass::kNone);
  // Gives a reference of this class back.
  void Unref(BlockId block, Touch touch,
             RetentionClass c = RetentionClass::kNone);
  // One reference changes its class.
  void Reclass(BlockId block, RetentionClass from, RetentionClass to);
  // The block, which is not in the index, has rows of provenance `session` from
  // now on until it is free again.
  void MarkSession(BlockId block);

  // The block named `key`, when its key ids are exactly `ids`; else kNoBlock.
  // Changes nothing.
  BlockId Find(const PrefixKey& key, std::span<const KeyId> ids) const;

  // Enters a full, referenced block of provenance `grid` into the index, below
  // the entry `parent` (nothing: the chain starts here). Returns the block that
  // the index now has for these ids: another one when they were there before.
  // kNoBlock, and no entry, when the parent has none or the key is taken by
  // other ids.
  BlockId Publish(BlockId block, const PrefixKey& key,
                  const std::optional<PrefixKey>& parent,
                  std::span<const KeyId> ids);

  // The least recently used block that no reference holds leaves the index and
  // is the next to be allocated. False when there is none.
  bool EvictOne();
  // Every block that no reference holds leaves the index. Returns how many.
  int EvictAll();

  // Was a block of this name evicted lately? For the reason of a miss.
  bool EvictedLately(const PrefixKey& key) const {
    return evicted_.contains(key);
  }

  // Every rule above, checked the long way; `held` lists a block once for each
  // reference that the caller knows of. For tests.
  absl::Status CheckInvariants(std::span<const BlockId> held) const;
  // Everything that a request could leave behind, as text. For tests.
  std::string Describe() const;

 private:
  struct Entry {
    PrefixKey key;
    std::optional<PrefixKey> parent;
    std::vector<KeyId> ids;
    int depth = 0;     // blocks above it in its chain
    int children = 0;  // entries that name it as parent
  };
  struct Meta {
    int references = 0;
    std::array<int, kRetentionClasses> of_class{};  // they sum up to references
    std::uint64_t last_use = 0;
    std::chrono::steady_clock::time_point used_at;
    Provenance provenance = Provenance::kGrid;
    std::optional<Entry> entry;
  };
  // Least recently used first; in a tie the one further from the root.
  using EvictionKey = std::tuple<std::uint64_t, int, BlockId>;

  static EvictionKey KeyOf(BlockId block, const Meta& meta);
  static RetentionClass ClassOf(const Meta& meta);
  void CountClass(Meta& meta, RetentionClass c, int change);
  bool Evictable(const Meta& meta) const;
  void Evict(BlockId block);
  void CountAge(const Meta& meta);
  void RememberEvicted(const PrefixKey& key);

  std::byte* const base_;
  const std::size_t block_bytes_;
  const bool host_memory_;
  std::vector<Meta> meta_;
  std::vector<BlockId> free_;  // a stack: what was given back last goes first
  std::set<EvictionKey> evictable_;
  std::unordered_map<PrefixKey, BlockId, PrefixKeyHash> index_;
  std::unordered_set<PrefixKey, PrefixKeyHash> evicted_;
  std::deque<PrefixKey> evicted_order_;
  int used_ = 0;
  std::array<int, kRetentionClasses> held_{};  // used blocks by their class
  std::uint64_t clock_ = 0;
  std::uint64_t evictions_ = 0;
  int touched_ = 0;  // blocks below this were used once
  EvictionAges ages_;
  Clock& time_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_POOL_BLOCK_POOL_H_
