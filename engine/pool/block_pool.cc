#include "engine/pool/block_pool.h"

#include <algorithm>
#include <utility>

#include "shared/cache_layout.h"
#include "shared/check.h"

namespace holdfast::engine {
namespace {

// Names remembered for the reason of a miss: 32 bytes each.
constexpr std::size_t kRememberedEvictions = 4096;

}  // namespace

BlockPool::BlockPool(std::byte* base, std::size_t block_bytes, int blocks,
                     Clock& clock, bool host_memory)
    : base_(base),
      block_bytes_(block_bytes),
      host_memory_(host_memory),
      meta_(blocks),
      time_(clock) {
  free_.reserve(blocks);
  for (BlockId block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

BlockPool::Counts BlockPool::counts() const {
  const int free = static_cast<int>(free_.size());
  return {.free = free,
          .used = used_,
          .cached = blocks() - free - used_,
          .evictions = evictions_,
          .untouched = blocks() - touched_,
          .ages = ages_};
}

BlockPool::EvictionKey BlockPool::KeyOf(BlockId block, const Meta& meta) {
  return {meta.last_use, -meta.entry->depth, block};
}

bool BlockPool::Evictable(const Meta& meta) const {
  return meta.references == 0 && meta.entry.has_value() &&
         meta.entry->children == 0;
}

RetentionClass BlockPool::ClassOf(const Meta& meta) {
  for (std::size_t c = kRetentionClasses; c-- > 1;) {
    if (meta.of_class[c] > 0) return static_cast<RetentionClass>(c);
  }
  return RetentionClass::kNone;
}

// `change` is 1 or -1.
void BlockPool::CountClass(Meta& meta, RetentionClass c, int change) {
  if (meta.references > 0) --held_[IndexOf(ClassOf(meta))];
  meta.references += change;
  meta.of_class[IndexOf(c)] += change;
  HF_CHECK(meta.of_class[IndexOf(c)] >= 0);
  if (meta.references > 0) ++held_[IndexOf(ClassOf(meta))];
}

BlockId BlockPool::Allocate(RetentionClass c) {
  if (free_.empty()) EvictOne();
  return AllocateFree(c);
}

int BlockPool::EvictAll() {
  int evicted = 0;
  while (EvictOne()) ++evicted;
  return evicted;
}

BlockId BlockPool::AllocateFree(RetentionClass c) {
  if (free_.empty()) return kNoBlock;
  const BlockId block = free_.back();
  free_.pop_back();
  touched_ = std::max(touched_, block + 1);
  CountClass(meta_[block], c, 1);
  ++used_;
  return block;
}

void BlockPool::Ref(BlockId block, RetentionClass c) {
  Meta& meta = meta_[block];
  HF_CHECK(meta.references > 0 || meta.entry.has_value());
  if (Evictable(meta)) evictable_.erase(KeyOf(block, meta));
  if (meta.references == 0) ++used_;
  CountClass(meta, c, 1);
}

void BlockPool::Reclass(BlockId block, RetentionClass from, RetentionClass to) {
  Meta& meta = meta_[block];
  CountClass(meta, to, 1);
  CountClass(meta, from, -1);
}

void BlockPool::Unref(BlockId block, Touch touch, RetentionClass c) {
  Meta& meta = meta_[block];
  HF_CHECK(meta.references > 0);
  if (touch == Touch::kYes) {
    meta.last_use = ++clock_;
    meta.used_at = time_.Now();
  }
  CountClass(meta, c, -1);
  if (meta.references > 0) return;
  --used_;
  if (!meta.entry.has_value()) {
    meta.last_use = 0;
    meta.provenance = Provenance::kGrid;
    free_.push_back(block);
  } else if (Evictable(meta)) {
    evictable_.insert(KeyOf(block, meta));
  }
}

void BlockPool::MarkSession(BlockId block) {
  Meta& meta = meta_[block];
  HF_CHECK(meta.references > 0 && !meta.entry.has_value());
  meta.provenance = Provenance::kSession;
}

bool BlockPool::EvictOne() {
  if (evictable_.empty()) return false;
  Evict(std::get<2>(*evictable_.begin()));
  return true;
}

void BlockPool::CountAge(const Meta& meta) {
  const double age =
      std::chrono::duration<double>(time_.Now() - meta.used_at).count();
  const auto bucket = std::ranges::lower_bound(kAgeBounds, age);
  ++ages_.blocks[bucket - kAgeBounds.begin()];
  ages_.seconds += age;
}

void BlockPool::Evict(BlockId block) {
  Meta& meta = meta_[block];
  CountAge(meta);
  evictable_.erase(KeyOf(block, meta));
  index_.erase(meta.entry->key);
  RememberEvicted(meta.entry->key);
  if (meta.entry->parent) {
    const BlockId parent = index_.at(*meta.entry->parent);
    --meta_[parent].entry->children;
    if (Evictable(meta_[parent])) {
      evictable_.insert(KeyOf(parent, meta_[parent]));
    }
  }
  meta.entry.reset();
  meta.last_use = 0;
  free_.push_back(block);
  ++evictions_;
}

void BlockPool::RememberEvicted(const PrefixKey& key) {
  if (!evicted_.insert(key).second) return;
  evicted_order_.push_back(key);
  if (evicted_order_.size() > kRememberedEvictions) {
    evicted_.erase(evicted_order_.front());
    evicted_order_.pop_front();
  }
}

BlockId BlockPool::Find(const PrefixKey& key,
                        std::span<const KeyId> ids) const {
  const auto found = index_.find(key);
  if (found == index_.end()) return kNoBlock;
  const std::vector<KeyId>& have = meta_[found->second].entry->ids;
  return std::ranges::equal(have, ids) ? found->second : kNoBlock;
}

BlockId BlockPool::Publish(BlockId block, const PrefixKey& key,
                           const std::optional<PrefixKey>& parent,
                           std::span<const KeyId> ids) {
  HF_CHECK(ids.size() == static_cast<std::size_t>(kBlockTokens));
  Meta& meta = meta_[block];
  HF_CHECK(meta.references > 0 && meta.provenance == Provenance::kGrid);
  if (index_.contains(key)) return Find(key, ids);
  HF_CHECK(!meta.entry.has_value());
  int depth = 0;
  if (parent) {
    const auto above = index_.find(*parent);
    if (above == index_.end()) return kNoBlock;
    Meta& parent_meta = meta_[above->second];
    if (Evictable(parent_meta)) {
      evictable_.erase(KeyOf(above->second, parent_meta));
    }
    ++parent_meta.entry->children;
    depth = parent_meta.entry->depth + 1;
  }
  meta.entry = Entry{.key = key,
                     .parent = parent,
                     .ids = {ids.begin(), ids.end()},
                     .depth = depth};
  index_.emplace(key, block);
  return block;
}

}  // namespace holdfast::engine
