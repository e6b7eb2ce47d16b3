#include "engine/cache/leases.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace holdfast::engine {

static_assert(kLeaseSlots * sizeof(std::uint64_t) <= kLeaseTableBytes);
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

Leases::Leases(std::byte* table, const LentBlocks& numbers)
    : table_(reinterpret_cast<std::uint64_t*>(table)),
      numbers_(numbers),
      slots_(kLeaseSlots) {
  for (std::uint32_t slot = 0; slot < kLeaseSlots; ++slot) Write(slot, 0);
}

void Leases::Write(std::uint32_t slot, std::uint64_t generation) {
  std::atomic_ref<std::uint64_t>(table_[slot])
      .store(generation, std::memory_order_seq_cst);
  // Nor is a reused block written before its word: a store alone holds back
  // only what comes before it.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::optional<LeaseRef> Leases::Grant(std::vector<BlockId> blocks,
                                      Time deadline) {
  for (std::uint32_t i = 0; i < kLeaseSlots; ++i) {
    Slot& slot = slots_[i];
    if (slot.generation != 0) continue;
    for (const BlockId block : blocks) numbers_.Ref(block);
    slot = {next_generation_++, std::move(blocks), deadline, false};
    ++live_;
    Write(i, slot.generation);
    return LeaseRef{i, slot.generation};
  }
  return std::nullopt;
}

void Leases::Await(const LeaseRef& lease) {
  if (!Lasts(lease)) return;
  Slot& slot = slots_[lease.slot];
  if (slot.awaited || !HoldsPool(slot)) return;
  slot.awaited = true;
  ++awaited_;
}

bool Leases::Lasts(const LeaseRef& lease) const {
  return lease.slot < kLeaseSlots &&
         slots_[lease.slot].generation == lease.generation;
}

void Leases::End(std::uint32_t slot) {
  // The word first: who reads the blocks after it sees that they are gone.
  Write(slot, 0);
  Slot ended = std::exchange(slots_[slot], Slot{});
  --live_;
  awaited_ -= ended.awaited ? 1 : 0;
  // Tail first, as a sequence gives its blocks back.
  for (std::size_t i = ended.blocks.size(); i-- > 0;) {
    numbers_.Unref(ended.blocks[i]);
  }
}

void Leases::Collect(Time now) {
  for (const LeaseRef& lease : returns_->Take()) {
    if (Lasts(lease)) End(lease.slot);
  }
  for (std::uint32_t i = 0; i < kLeaseSlots; ++i) {
    if (slots_[i].generation == 0 || slots_[i].deadline > now) continue;
    ++revoked_;
    End(i);
  }
}

int Leases::RevokeAll() {
  return Revoke([](const Slot&) { return true; });
}

int Leases::RevokePool() {
  return Revoke(
      [this](const Slot& slot) { return !slot.awaited && HoldsPool(slot); });
}

int Leases::Revoke(const std::function<bool(const Slot&)>& which) {
  Collect(Time::min());
  int ended = 0;
  for (std::uint32_t i = 0; i < kLeaseSlots; ++i) {
    if (slots_[i].generation == 0 || !which(slots_[i])) continue;
    ++revoked_;
    ++ended;
    End(i);
  }
  return ended;
}

bool Leases::HoldsPool(const Slot& slot) const {
  return std::ranges::any_of(
      slot.blocks, [this](BlockId lent) { return numbers_.OfThePool(lent); });
}

}  // namespace holdfast::engine
