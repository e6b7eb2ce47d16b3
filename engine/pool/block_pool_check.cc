// The self-check of BlockPool and its description: long, and for tests.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/pool/block_pool.h"
#include "fmt/format.h"
#include "shared/sha256.h"

namespace holdfast::engine {
namespace {

absl::Status Broken(BlockId block, const std::string& what) {
  return absl::InternalError(fmt::format("block {}: {}", block, what));
}

}  // namespace

absl::Status BlockPool::CheckInvariants(std::span<const BlockId> held) const {
  std::map<BlockId, int> references;
  for (BlockId block : held) ++references[block];
  std::map<BlockId, int> on_free_list;
  for (BlockId block : free_) ++on_free_list[block];
  std::map<PrefixKey, int> children;
  std::size_t entries = 0, evictable = 0;
  int used = 0;
  std::array<int, kRetentionClasses> held_by_class{};
  for (const Meta& meta : meta_) {
    if (meta.entry && meta.entry->parent) ++children[*meta.entry->parent];
  }
  for (BlockId block = 0; block < blocks(); ++block) {
    const Meta& meta = meta_[block];
    if (meta.references != references[block]) {
      return Broken(block, fmt::format("{} references, {} known",
                                       meta.references, references[block]));
    }
    used += meta.references > 0;
    int of_classes = 0;
    for (const int count : meta.of_class) of_classes += count;
    if (of_classes != meta.references) {
      return Broken(block, fmt::format("{} references, {} of all classes",
                                       meta.references, of_classes));
    }
    if (meta.references > 0) ++held_by_class[IndexOf(ClassOf(meta))];
    const bool free = meta.references == 0 && !meta.entry;
    if (on_free_list[block] != (free ? 1 : 0)) {
      return Broken(
          block, fmt::format("{} times on the free list", on_free_list[block]));
    }
    if (Evictable(meta)) {
      ++evictable;
      if (!evictable_.contains(KeyOf(block, meta))) {
        return Broken(block, "may be evicted and is not in the order");
      }
    }
    if (free && meta.provenance != Provenance::kGrid) {
      return Broken(block, "is free and has a provenance");
    }
    if (!meta.entry) continue;
    ++entries;
    if (meta.provenance != Provenance::kGrid) {
      return Broken(block, "is in the index with rows of a session");
    }
    const auto found = index_.find(meta.entry->key);
    if (found == index_.end() || found->second != block) {
      return Broken(block, "has an entry that the index does not lead to");
    }
    if (meta.entry->children != children[meta.entry->key]) {
      return Broken(block, "counts its children wrong");
    }
    if (meta.entry->parent && !index_.contains(*meta.entry->parent)) {
      return Broken(block, "outlived its parent");
    }
  }
  if (entries != index_.size()) return absl::InternalError("stray index entry");
  if (evictable != evictable_.size()) {
    return absl::InternalError("stray block in the eviction order");
  }
  if (used != used_) return absl::InternalError("used blocks counted wrong");
  if (held_by_class != held_) {
    return absl::InternalError("blocks of a class counted wrong");
  }
  return absl::OkStatus();
}

std::string BlockPool::Describe() const {
  std::string text;
  for (BlockId block = 0; block < blocks(); ++block) {
    const Meta& meta = meta_[block];
    text +=
        fmt::format("{} refs={} use={}", block, meta.references, meta.last_use);
    if (meta.references > 0) {
      text += fmt::format(" {}", RetentionClassName(ClassOf(meta)));
    }
    if (meta.provenance == Provenance::kSession) text += " session";
    if (meta.entry) {
      text += fmt::format(" key={} children={}", ToHex(meta.entry->key),
                          meta.entry->children);
    }
    text += '\n';
  }
  text += fmt::format("free={}\n", fmt::join(free_, ","));
  for (const EvictionKey& key : evictable_) {
    text += fmt::format("evictable={}\n", std::get<2>(key));
  }
  for (const PrefixKey& key : evicted_order_) {
    text += fmt::format("evicted={}\n", ToHex(key));
  }
  return text + fmt::format("clock={} evictions={}\n", clock_, evictions_);
}

}  // namespace holdfast::engine
