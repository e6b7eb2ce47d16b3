// What an attached engine says of its pool.
#ifndef HOLDFAST_CACHESVC_ATTACH_ANNOUNCED_LAYOUT_H_
#define HOLDFAST_CACHESVC_ATTACH_ANNOUNCED_LAYOUT_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "shared/cache_layout.h"

namespace holdfast::cachesvc {

struct AnnouncedLayout {
  std::string model_name;
  CacheLayout layout;
  std::uint32_t block_tokens = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t block_count = 0;
  // In the pool: a word for each lease; 0 slots: nothing is leased.
  std::uint64_t lease_table_offset = 0;
  std::uint32_t lease_slots = 0;
  // Behind block_count, the blocks of a pool on a device that is mapped.
  std::uint64_t device_block_count = 0;
  // Of the pool on a device, mapped, offered or neither; 0: there is none.
  std::uint64_t device_pool_bytes = 0;
};

// OK when every block lies inside a pool of `pool_bytes` and every row inside
// its block, whatever the numbers: they come from another process. The message
// names the field.
absl::Status CheckLayout(const AnnouncedLayout& announced,
                         std::uint64_t pool_bytes);

// The layout of the newest attach that announced one. Thread-safe.
class LayoutBook {
 public:
  void Put(std::uint64_t epoch, AnnouncedLayout layout);
  // Nothing for an epoch that has announced none.
  std::optional<AnnouncedLayout> Get(std::uint64_t epoch) const;

 private:
  mutable std::mutex mutex_;
  std::uint64_t epoch_ = 0;  // guarded by mutex_; no attach has 0
  AnnouncedLayout layout_;   // guarded by mutex_
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_ATTACH_ANNOUNCED_LAYOUT_H_
