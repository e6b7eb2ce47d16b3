#include "engine/anchors/anchor_slots.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "fmt/format.h"

namespace holdfast::engine {

int AnchorSlotsFor(std::uint64_t budget_bytes, std::size_t section_bytes) {
  if (section_bytes == 0) return 0;
  return static_cast<int>(
      std::min<std::uint64_t>(budget_bytes / section_bytes, kMaxAnchorSlots));
}

std::string DescribeAnchors(int slots, std::size_t section_bytes,
                            bool recurrent) {
  constexpr double kMebi = 1 << 20;
  const double each = static_cast<double>(section_bytes) / kMebi;
  return fmt::format(
      "anchors: {} bytes each, a copy of {}\n"
      "  line, message, end of prompt {:10.1f} MiB  {} anchors\n"
      "  end of the last answer       {:10.1f} MiB  one a seat",
      section_bytes, recurrent ? "the recurrent state" : "the last hidden row",
      each * slots, slots, each);
}

AnchorSlots::AnchorSlots(std::size_t section_bytes, int capacity)
    : section_bytes_(section_bytes), capacity_(capacity) {
  spare_.reserve(capacity);
}

AnchorRef AnchorSlots::Take(int position, AnchorKind kind,
                            const std::byte* sections) {
  if (full()) return nullptr;
  AlignedBytes memory;
  if (spare_.empty()) {
    memory = AllocateAligned(section_bytes_);
    if (memory == nullptr) return nullptr;
  } else {
    memory = std::move(spare_.back());
    spare_.pop_back();
  }
  std::memcpy(memory.get(), sections, section_bytes_);
  ++live_;
  ++taken_[static_cast<std::size_t>(kind)];
  auto* anchor =
      new Anchor{.position = position, .kind = kind, .sections = memory.get()};
  return AnchorRef(
      anchor, [this, slot = std::move(memory).release()](const Anchor* gone) {
        delete gone;
        spare_.emplace_back(slot);
        --live_;
      });
}

}  // namespace holdfast::engine
