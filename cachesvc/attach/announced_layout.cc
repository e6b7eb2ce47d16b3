#include "cachesvc/attach/announced_layout.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

// Far above every model's; they bound what one call makes us keep.
constexpr std::size_t kMaxParts = 256;
constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxModelNameBytes = 1024;
constexpr std::uint32_t kMaxLeases = 65536;
constexpr std::uint32_t kMaxViewParts = 65536;

absl::Status Bad(std::string message) {
  return absl::InvalidArgumentError("layout: " + std::move(message));
}

// Names end up in file formats and on terminals: printable ASCII, no spaces.
bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return c > ' ' && c < 0x7f; });
}

// Checks what views and sections have in common.
class PartCheck {
 public:
  absl::Status Add(std::string_view kind, const std::string& name,
                   std::uint64_t bytes) {
    if (!IsName(name))
      return Bad(
          fmt::format("part {}: a {}'s name must be 1 to {} "
                      "printable ASCII characters",
                      seen_.size() + 1, kind, kMaxNameBytes));
    if (!seen_.insert(name).second)
      return Bad(fmt::format("two parts are named {}", name));
    if (bytes == 0) return Bad(fmt::format("{} {}: no bytes", kind, name));
    if (__builtin_add_overflow(sum_, bytes, &sum_))
      return Bad(
          fmt::format("{} {}: {} bytes are too many", kind, name, bytes));
    return absl::OkStatus();
  }
  std::uint64_t sum() const { return sum_; }
  void StartSum() { sum_ = 0; }

 private:
  std::set<std::string> seen_;
  std::uint64_t sum_ = 0;
};

absl::Status CheckBlocks(const AnnouncedLayout& announced,
                         std::uint64_t row_bytes, std::uint64_t pool_bytes) {
  if (announced.block_tokens != kBlockTokens)
    return Bad(fmt::format("block_tokens {}: must be {}",
                           announced.block_tokens, kBlockTokens));
  const std::uint32_t grid = announced.layout.grid_tokens;
  if (grid == 0 || grid % kBlockTokens != 0)
    return Bad(fmt::format("grid_tokens {}: must be a multiple of {}", grid,
                           kBlockTokens));
  std::uint64_t needed = 0;
  if (__builtin_mul_overflow(row_bytes, std::uint64_t{kBlockTokens}, &needed) ||
      announced.block_bytes < needed ||
      announced.block_bytes % kBlockAlignment != 0) {
    return Bad(fmt::format(
        "block_bytes {}: must hold {} rows of {} bytes and be a multiple of {}",
        announced.block_bytes, kBlockTokens, row_bytes, kBlockAlignment));
  }
  std::uint64_t all = 0;
  if (announced.block_count == 0 ||
      __builtin_mul_overflow(announced.block_bytes, announced.block_count,
                             &all) ||
      all > pool_bytes) {
    return Bad(fmt::format("{} blocks of {} bytes are not a pool of {} bytes",
                           announced.block_count, announced.block_bytes,
                           pool_bytes));
  }
  return absl::OkStatus();
}

// The table lies behind the blocks, so that no row is taken for a lease.
absl::Status CheckLeases(const AnnouncedLayout& announced,
                         std::uint64_t pool_bytes) {
  const std::uint64_t bytes = announced.lease_slots * sizeof(std::uint64_t);
  const std::uint64_t offset = announced.lease_table_offset;
  if (bytes == 0) return absl::OkStatus();
  if (announced.lease_slots > kMaxLeases || offset % 8 != 0 ||
      offset < announced.block_bytes * announced.block_count ||
      offset > pool_bytes || bytes > pool_bytes - offset) {
    return Bad(fmt::format(
        "lease table of {} slots at {} does not lie behind the blocks",
        announced.lease_slots, offset));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckLayout(const AnnouncedLayout& announced,
                         std::uint64_t pool_bytes) {
  const CacheLayout& layout = announced.layout;
  if (announced.model_name.size() > kMaxModelNameBytes)
    return Bad(fmt::format("model_name of {} bytes: at most {}",
                           announced.model_name.size(), kMaxModelNameBytes));
  if (layout.views.empty()) return Bad("no views");
  if (layout.views.size() + layout.sections.size() > kMaxParts)
    return Bad(fmt::format("{} views and {} sections: at most {} together",
                           layout.views.size(), layout.sections.size(),
                           kMaxParts));
  PartCheck parts;
  for (const View& view : layout.views) {
    absl::Status status = parts.Add("view", view.name, view.bytes_per_token);
    if (!status.ok()) return status;
    if (view.parts == 0 || view.parts > kMaxViewParts ||
        view.bytes_per_token % view.parts != 0) {
      return Bad(fmt::format("view {}: {} bytes in {} parts", view.name,
                             view.bytes_per_token, view.parts));
    }
  }
  const std::uint64_t row_bytes = parts.sum();
  parts.StartSum();
  for (const Section& section : layout.sections) {
    absl::Status status = parts.Add("section", section.name, section.bytes);
    if (!status.ok()) return status;
  }
  if (absl::Status s = CheckBlocks(announced, row_bytes, pool_bytes); !s.ok())
    return s;
  return CheckLeases(announced, pool_bytes);
}

void LayoutBook::Put(std::uint64_t epoch, AnnouncedLayout layout) {
  std::lock_guard lock(mutex_);
  epoch_ = epoch;
  layout_ = std::move(layout);
}

std::optional<AnnouncedLayout> LayoutBook::Get(std::uint64_t epoch) const {
  std::lock_guard lock(mutex_);
  if (epoch != epoch_ || epoch_ == 0) return std::nullopt;
  return layout_;
}

}  // namespace holdfast::cachesvc
