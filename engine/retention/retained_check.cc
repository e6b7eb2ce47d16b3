// The self-check of Retained and its description: long, and for tests.
#include <array>
#include <cstdint>
#include <string>

#include "engine/retention/retained.h"
#include "fmt/format.h"
#include "shared/cache_layout.h"
#include "shared/sha256.h"

namespace holdfast::engine {
namespace {

absl::Status Broken(const KeptConversation& kept, const std::string& what) {
  return absl::InternalError(fmt::format("kept {} of {} rows: {}",
                                         ToHex(kept.sequence.root).substr(0, 8),
                                         kept.sequence.rows(), what));
}

absl::Status CheckOne(const KeptConversation& kept, const ResumeRule& rule) {
  const Sequence& sequence = kept.sequence;
  const BlockTable& table = sequence.table;
  const bool end = sequence.sections != nullptr;
  if (table.size() != (sequence.rows() + kBlockTokens - 1) / kBlockTokens) {
    return Broken(kept, fmt::format("{} blocks", table.size()));
  }
  if (table.size() == 0) return Broken(kept, "is empty");
  for (int i = 0; i < table.size(); ++i) {
    const auto expected =
        i < kept.pinned_blocks ? RetentionClass::kPinned : kept.rest;
    if (table.retention(i) != expected) {
      return Broken(kept, fmt::format("block {} is {}", i,
                                      RetentionClassName(table.retention(i))));
    }
  }
  if (kept.pinned_blocks > table.size()) return Broken(kept, "pins too much");
  if (kept.rest == RetentionClass::kGuest && (end || kept.pinned_blocks > 0)) {
    return Broken(kept, "is a guest's with an end or a head");
  }
  if (!end && sequence.taint != kUntainted) {
    return Broken(kept, "has rows of a session and no end");
  }
  if (rule.recurrent && !end && sequence.anchors.empty()) {
    return Broken(kept, "serves nobody");
  }
  int below = 0;
  for (const AnchorRef& anchor : sequence.anchors) {
    if (anchor->position <= below || anchor->position > sequence.rows()) {
      return Broken(kept, fmt::format("has an anchor at {}", anchor->position));
    }
    below = anchor->position;
    const auto expected = kept.rest != RetentionClass::kGuest &&
                                  below <= kept.pinned_blocks * kBlockTokens
                              ? RetentionClass::kPinned
                              : kept.rest;
    if (anchor->charged != expected) {
      return Broken(kept,
                    fmt::format("the anchor at {} is charged to {}", below,
                                RetentionClassName(anchor->charged)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Retained::CheckInvariants() const {
  std::array<int, kRetentionClasses> anchors{};
  for (const KeptConversation& kept : all_) {
    if (auto status = CheckOne(kept, rule_); !status.ok()) return status;
    for (const AnchorRef& anchor : kept.sequence.anchors) {
      ++anchors[IndexOf(anchor->charged)];
    }
  }
  for (const auto c : {RetentionClass::kGuest, RetentionClass::kParked,
                       RetentionClass::kPinned}) {
    if (anchors[IndexOf(c)] != slots_.live(c)) {
      return absl::InternalError(
          fmt::format("{} anchors charged to {}, {} are there", slots_.live(c),
                      RetentionClassName(c), anchors[IndexOf(c)]));
    }
    if (Over(c)) {
      return absl::InternalError(
          fmt::format("{} has {} bytes", RetentionClassName(c), bytes(c)));
    }
  }
  if (all_.size() > kMaxKept) return absl::InternalError("too many are kept");
  return absl::OkStatus();
}

std::string Retained::Describe() const {
  std::string text;
  for (const KeptConversation& kept : all_) {
    const Sequence& sequence = kept.sequence;
    text += fmt::format("{} root={} session={} rows={} pinned={} taint={}",
                        RetentionClassName(kept.rest), ToHex(sequence.root),
                        sequence.session_key, sequence.rows(),
                        kept.pinned_blocks, sequence.taint);
    for (const KeyId id : sequence.ids) text += fmt::format(" {}", id);
    for (int i = 0; i < sequence.table.size(); ++i) {
      text += fmt::format(" b{}", sequence.table.block(i));
    }
    for (const AnchorRef& anchor : sequence.anchors) {
      text +=
          fmt::format(" {}@{}", AnchorKindName(anchor->kind), anchor->position);
    }
    text += sequence.sections != nullptr ? " end\n" : "\n";
  }
  return text;
}

}  // namespace holdfast::engine
