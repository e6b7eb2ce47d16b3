// The memory of anchors: slots, each as large as a sequence's sections. Those
// of residents are a fixed number; those of other retention classes are limited
// by the budgets of their classes (engine/retention).
#ifndef HOLDFAST_ENGINE_ANCHORS_ANCHOR_SLOTS_H_
#define HOLDFAST_ENGINE_ANCHORS_ANCHOR_SLOTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/anchors/anchor.h"
#include "engine/anchors/section_buffers.h"

namespace holdfast::engine {

// However small a model's sections are: more would only be searched through.
inline constexpr int kMaxAnchorSlots = 1024;

// Slots that fit a budget of bytes, at most kMaxAnchorSlots.
int AnchorSlotsFor(std::uint64_t budget_bytes, std::size_t section_bytes);

// The part of anchors in the memory table at start.
std::string DescribeAnchors(int slots, std::size_t section_bytes,
                            bool recurrent);

// Memory is taken from `buffers` as slots come into use. One thread; outlives
// every anchor it gave.
class AnchorSlots {
 public:
  // `buffers` outlives the slots.
  AnchorSlots(SectionBuffers* buffers, int capacity);
  AnchorSlots(const AnchorSlots&) = delete;
  AnchorSlots& operator=(const AnchorSlots&) = delete;

  // Of residents.
  int capacity() const { return capacity_; }
  int live(RetentionClass c) const { return live_[IndexOf(c)]; }
  // Of all classes.
  int live() const;
  // For one more of a resident.
  bool full() const { return live(RetentionClass::kResident) >= capacity_; }
  std::size_t section_bytes() const { return buffers_.section_bytes(); }
  // Anchors made so far.
  std::uint64_t taken(AnchorKind kind) const {
    return taken_[static_cast<std::size_t>(kind)];
  }

  // An anchor that holds a copy of `sections`; its slot is free again when the
  // last reference goes. Null when all slots of residents are taken, for one of
  // them, or the machine has no memory for one more.
  AnchorRef Take(int position, AnchorKind kind, Provenance provenance,
                 const std::byte* sections,
                 RetentionClass c = RetentionClass::kResident,
                 bool turn = false);
  // Another class pays for it from now on, whatever there is room for: who asks
  // keeps the budgets.
  void Charge(const AnchorRef& anchor, RetentionClass c);

 private:
  SectionBuffers& buffers_;
  const int capacity_;
  std::array<int, kRetentionClasses> live_{};
  std::array<std::uint64_t, kAnchorKinds> taken_{};
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_ANCHORS_ANCHOR_SLOTS_H_
