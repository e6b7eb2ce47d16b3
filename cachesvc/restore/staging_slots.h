// The staging memory, cut into slots (shared/attach/PROTOCOL.md, slots).
#ifndef HOLDFAST_CACHESVC_RESTORE_STAGING_SLOTS_H_
#define HOLDFAST_CACHESVC_RESTORE_STAGING_SLOTS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "shared/clock/clock.h"

namespace holdfast::cachesvc {

// Thread-safe. A slot is in use until nobody holds it: neither a restore, nor
// a read from the disk that may still write to it.
class StagingSlots {
 public:
  struct Slot {
    std::uint32_t index = 0;
    // Higher than of every earlier use of this slot.
    std::uint64_t generation = 0;
    std::span<std::byte> memory;
  };
  using SlotRef = std::shared_ptr<const Slot>;

  // `memory` outlives every slot; `slots` divides it.
  StagingSlots(std::span<std::byte> memory, std::uint32_t slots);

  // Null when none was free until `deadline`.
  SlotRef Take(Deadline deadline);
  // Null when none is free now.
  SlotRef TryTake() { return Take(Deadline::min()); }

  std::uint32_t slots() const { return static_cast<std::uint32_t>(count_); }
  std::uint32_t used() const;
  std::size_t slot_bytes() const { return slot_bytes_; }

 private:
  // Outlives this while a slot is held.
  struct Shared {
    std::mutex mutex;
    std::condition_variable freed;
    std::vector<std::uint32_t> free;
    std::vector<std::uint64_t> generations;
  };

  const std::span<std::byte> memory_;
  const std::size_t count_;
  const std::size_t slot_bytes_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_RESTORE_STAGING_SLOTS_H_
