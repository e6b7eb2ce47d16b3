#include "cachesvc/restore/staging_slots.h"

#include "shared/check.h"

namespace holdfast::cachesvc {

StagingSlots::StagingSlots(std::span<std::byte> memory, std::uint32_t slots)
    : memory_(memory), count_(slots), slot_bytes_(memory.size() / slots) {
  HF_CHECK(slots > 0 && memory.size() % slots == 0);
  shared_->generations.assign(slots, 0);
  for (std::uint32_t i = slots; i-- > 0;) shared_->free.push_back(i);
}

StagingSlots::SlotRef StagingSlots::Take(Deadline deadline) {
  std::unique_lock lock(shared_->mutex);
  const auto any = [this] { return !shared_->free.empty(); };
  if (!any() && (deadline == Deadline::min() ||
                 !shared_->freed.wait_until(lock, deadline, any))) {
    return nullptr;
  }
  const std::uint32_t index = shared_->free.back();
  shared_->free.pop_back();
  auto* slot = new Slot{index, ++shared_->generations[index],
                        memory_.subspan(index * slot_bytes_, slot_bytes_)};
  lock.unlock();
  return SlotRef(slot, [shared = shared_](const Slot* ended) {
    {
      const std::lock_guard guard(shared->mutex);
      shared->free.push_back(ended->index);
    }
    shared->freed.notify_one();
    delete ended;
  });
}

std::uint32_t StagingSlots::used() const {
  const std::lock_guard lock(shared_->mutex);
  return static_cast<std::uint32_t>(count_ - shared_->free.size());
}

}  // namespace holdfast::cachesvc
