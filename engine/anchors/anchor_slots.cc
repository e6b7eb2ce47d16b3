#include "engine/anchors/anchor_slots.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
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

AnchorSlots::AnchorSlots(SectionBuffers* buffers, int capacity)
    : buffers_(*buffers), capacity_(capacity) {}

int AnchorSlots::live() const {
  return std::accumulate(live_.begin(), live_.end(), 0);
}

void AnchorSlots::Charge(const AnchorRef& anchor, RetentionClass c) {
  --live_[IndexOf(anchor->charged)];
  anchor->charged = c;
  ++live_[IndexOf(c)];
}

AnchorRef AnchorSlots::Take(int position, AnchorKind kind,
                            Provenance provenance, const std::byte* sections,
                            RetentionClass c, bool turn) {
  if (c == RetentionClass::kResident && full()) return nullptr;
  SectionBuffers::Buffer buffer = buffers_.Take();
  if (buffer == nullptr) return nullptr;
  buffers_.Copy(sections, buffer.get());
  ++live_[IndexOf(c)];
  ++taken_[static_cast<std::size_t>(kind)];
  const Anchor anchor{.position = position,
                      .kind = kind,
                      .provenance = provenance,
                      .turn = turn,
                      .sections = buffer.get(),
                      .charged = c};
  // The buffer goes back with the anchor, by its owner.
  struct Held {
    Anchor anchor;
    SectionBuffers::Buffer buffer;
    std::array<int, kRetentionClasses>* live;
    ~Held() { --(*live)[IndexOf(anchor.charged)]; }
  };
  auto held = std::make_shared<Held>(anchor, std::move(buffer), &live_);
  return AnchorRef(held, &held->anchor);
}

}  // namespace holdfast::engine
