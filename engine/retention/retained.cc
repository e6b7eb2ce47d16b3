#include "engine/retention/retained.h"

#include <algorithm>
#include <utility>

#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

// Are all rows of `part` rows of `whole`?
bool Contains(const Sequence& whole, const Sequence& part) {
  return whole.root == part.root && part.rows() <= whole.rows() &&
         SharedRows(whole.ids, part.ids) == part.rows();
}

int CountUpTo(const AnchorList& anchors, int position) {
  return static_cast<int>(std::ranges::count_if(
      anchors, [=](const AnchorRef& a) { return a->position <= position; }));
}

int PinnedRows(const KeptConversation& kept) {
  return kept.pinned_blocks * kBlockTokens;
}

// Drops what `heir` has now from conversations of at most class `most`.
void DropInherited(std::list<KeptConversation>& all, const Sequence& heir,
                   RetentionClass most, const ResumeRule& rule) {
  for (auto at = all.begin(); at != all.end();) {
    const auto kept = at++;
    if (kept->rest > most) continue;
    Sequence& sequence = kept->sequence;
    sequence.anchors = AnchorsWithout(sequence.anchors, heir.anchors);
    if (Contains(heir, sequence)) {
      // Its rows live on; what is left to keep are places to resume at.
      sequence.sections.reset();
      if (!rule.recurrent) sequence.table.Truncate(0);
    }
    if (sequence.sections == nullptr && sequence.table.size() > 0) {
      CutRows(sequence, sequence.rows(), rule);
      kept->pinned_blocks =
          std::min(kept->pinned_blocks, sequence.table.size());
    }
    if (sequence.table.size() == 0) all.erase(kept);
  }
}

}  // namespace

Retained::Retained(BlockPool& pool, AnchorSlots& slots, const ResumeRule& rule,
                   const RetentionBudgets& budgets)
    : pool_(pool), slots_(slots), rule_(rule), budgets_(budgets) {}

// As many as are charged, or will be once they are thinned.
int Retained::AnchorsIn(const KeptConversation& kept, RetentionClass c) const {
  const AnchorList& anchors = kept.sequence.anchors;
  const int all = static_cast<int>(anchors.size());
  const int pinned = CountUpTo(anchors, PinnedRows(kept));
  if (c == RetentionClass::kPinned) return std::min(pinned, kPinnedAnchors);
  if (c != kept.rest) return 0;
  if (c == RetentionClass::kGuest) return all;
  return std::min(all - pinned, kParkedAnchors) +
         (kept.sequence.sections != nullptr ? 1 : 0);
}

std::uint64_t Retained::bytes(RetentionClass c) const {
  std::uint64_t anchors = 0;
  for (const KeptConversation& kept : all_) anchors += AnchorsIn(kept, c);
  return pool_.held(c) * pool_.block_bytes() + anchors * slots_.section_bytes();
}

bool Retained::Over(RetentionClass c) const {
  switch (c) {
    case RetentionClass::kGuest:
      return bytes(c) > budgets_.stash_bytes;
    case RetentionClass::kParked:
      return bytes(c) > budgets_.park_bytes;
    case RetentionClass::kPinned:
      return bytes(c) > budgets_.pin_bytes;
    default:
      return false;
  }
}

// As much of the head as the budget holds, with its anchors.
int Retained::HeadBlocks(const Sequence& sequence, int wanted_rows) const {
  const int anchors =
      std::min(CountUpTo(sequence.anchors, wanted_rows), kPinnedAnchors);
  const std::uint64_t for_anchors = anchors * slots_.section_bytes();
  if (for_anchors >= budgets_.pin_bytes) return 0;
  return static_cast<int>(std::min<std::uint64_t>(
      wanted_rows / kBlockTokens,
      (budgets_.pin_bytes - for_anchors) / pool_.block_bytes()));
}

void Retained::Displace(Sequence sequence, const Displacement& by,
                        const AnchorList& heir) {
  ++counters_.displaced;
  const int shareable =
      rule_.grid.SharedBelow(std::min(sequence.rows(), sequence.taint));
  const int head = HeadRows(by, sequence.head, shareable);
  sequence.anchors = AnchorsWithout(sequence.anchors, heir);
  // A request resumes at one of provenance `session` never.
  std::erase_if(sequence.anchors, [](const AnchorRef& anchor) {
    return anchor->provenance == Provenance::kSession;
  });
  KeptConversation kept{.sequence = std::move(sequence)};
  kept.length = kept.sequence.rows();
  kept.pinned_blocks = HeadBlocks(kept.sequence, head);
  BlockTable& table = kept.sequence.table;
  table.Reclass(0, kept.pinned_blocks, RetentionClass::kPinned);
  table.Reclass(kept.pinned_blocks, table.size(), RetentionClass::kParked);
  all_.push_back(std::move(kept));
  LimitBranches(all_.back().sequence);
  EnforceBudgets();
}

void Retained::KeepGuest(Sequence sequence) {
  ++counters_.guests;
  sequence.sections.reset();
  std::erase_if(sequence.anchors, [](const AnchorRef& anchor) {
    return anchor->charged != RetentionClass::kGuest;
  });
  sequence.anchors = NewestAnchors(sequence.anchors, kGuestAnchors);
  CutRows(sequence, sequence.rows(), rule_);
  if (sequence.rows() == 0) return;
  DropInherited(all_, sequence, RetentionClass::kGuest, rule_);
  sequence.table.Reclass(0, sequence.table.size(), RetentionClass::kGuest);
  KeptConversation kept{.sequence = std::move(sequence),
                        .rest = RetentionClass::kGuest};
  kept.length = kept.sequence.rows();
  all_.push_back(std::move(kept));
  LimitBranches(all_.back().sequence);
  EnforceBudgets();
}

void Retained::Inherit(const Sequence& resident) {
  DropInherited(all_, resident, RetentionClass::kResident, rule_);
  for (const AnchorRef& anchor : resident.anchors) {
    slots_.Charge(anchor, RetentionClass::kResident);
  }
  EnforceBudgets();
}

void Retained::Touch(const Sequence* sequence) {
  const auto at = std::ranges::find_if(all_, [=](const KeptConversation& kept) {
    return &kept.sequence == sequence;
  });
  if (at != all_.end()) all_.splice(all_.end(), all_, at);
}

void Retained::LimitBranches(const Sequence& newest) {
  const auto of_session = [&newest](const KeptConversation& kept) {
    return kept.sequence.root == newest.root &&
           kept.sequence.session_key == newest.session_key;
  };
  if (!newest.session_key.empty() &&
      std::ranges::count_if(all_, of_session) > kMaxBranches) {
    Erase(std::ranges::find_if(all_, of_session));
  }
  if (all_.size() > kMaxKept) Erase(all_.begin());
}

// The tail of the oldest head becomes a part of what is parked behind it.
bool Retained::Demote() {
  const auto at = std::ranges::find_if(all_, [](const KeptConversation& kept) {
    return kept.pinned_blocks > 0;
  });
  if (at == all_.end()) return false;
  --at->pinned_blocks;
  at->sequence.table.Reclass(at->pinned_blocks, at->pinned_blocks + 1,
                             at->rest);
  return true;
}

Retained::Position Retained::OldestOf(RetentionClass c) {
  return std::ranges::find_if(all_, [c](const KeptConversation& kept) {
    if (c == RetentionClass::kPinned) return kept.pinned_blocks > 0;
    return kept.rest == c && (kept.sequence.table.size() > kept.pinned_blocks ||
                              kept.sequence.sections != nullptr);
  });
}

bool Retained::ReportLoss(KeptConversation& kept) {
  if (kept.reported || kept.rest == RetentionClass::kGuest ||
      kept.length < budgets_.spill_min_tokens) {
    return false;
  }
  kept.reported = true;
  if (on_loss_) on_loss_(kept.sequence);
  return true;
}

bool Retained::WarnNext() {
  for (const auto c : {RetentionClass::kParked, RetentionClass::kPinned}) {
    if (const auto at = OldestOf(c); at != all_.end()) return ReportLoss(*at);
  }
  return false;
}

void Retained::CountCut(int blocks, int pinned, RetentionClass rest) {
  counters_.blocks_cut[IndexOf(RetentionClass::kPinned)] += pinned;
  counters_.blocks_cut[IndexOf(rest)] += blocks - pinned;
}

void Retained::Cut(Position at) {
  ReportLoss(*at);
  Sequence& sequence = at->sequence;
  const int blocks = sequence.table.size();
  // An end on a block's edge behind nothing but pinned rows.
  const bool end_alone =
      blocks == at->pinned_blocks && sequence.sections != nullptr;
  if (end_alone) sequence.sections.reset();
  const int rows = end_alone ? sequence.rows() : (blocks - 1) * kBlockTokens;
  counters_.anchors_cut += CutRows(sequence, rows, rule_);
  const int left = sequence.table.size();
  CountCut(blocks - left, std::max(0, at->pinned_blocks - left), at->rest);
  at->pinned_blocks = std::min(at->pinned_blocks, left);
  if (left == 0) all_.erase(at);
}

void Retained::Erase(Position at) {
  ReportLoss(*at);
  CountCut(at->sequence.table.size(), at->pinned_blocks, at->rest);
  counters_.anchors_cut += at->sequence.anchors.size();
  all_.erase(at);
}

void Retained::ThinAnchors(KeptConversation& kept) {
  AnchorList& anchors = kept.sequence.anchors;
  const std::size_t before = anchors.size();
  if (kept.rest != RetentionClass::kGuest) {
    const auto split = anchors.begin() + CountUpTo(anchors, PinnedRows(kept));
    AnchorList pinned = SpreadAnchors({anchors.begin(), split}, kPinnedAnchors,
                                      PinnedRows(kept));
    const AnchorList parked =
        ParkedAnchors({split, anchors.end()}, kParkedAnchors);
    for (const AnchorRef& anchor : pinned) {
      slots_.Charge(anchor, RetentionClass::kPinned);
    }
    for (const AnchorRef& anchor : parked) slots_.Charge(anchor, kept.rest);
    pinned.insert(pinned.end(), parked.begin(), parked.end());
    anchors = std::move(pinned);
  }
  counters_.anchors_thinned += before - anchors.size();
}

void Retained::EnforceBudgets() {
  while (Over(RetentionClass::kPinned) && Demote()) {
  }
  for (const auto c : {RetentionClass::kGuest, RetentionClass::kParked}) {
    while (Over(c)) {
      const auto at = OldestOf(c);
      if (at == all_.end()) break;
      Cut(at);
    }
  }
  for (KeptConversation& kept : all_) ThinAnchors(kept);
}

bool Retained::GiveBlock(RetentionClass most) {
  for (const auto c : {RetentionClass::kGuest, RetentionClass::kParked,
                       RetentionClass::kPinned}) {
    if (c > most) return false;
    const auto at = OldestOf(c);
    if (at == all_.end()) continue;
    Cut(at);
    return true;
  }
  return false;
}

void Retained::Clear() { all_.clear(); }

std::vector<const Sequence*> Retained::Sequences() const {
  std::vector<const Sequence*> sequences;
  for (const KeptConversation& kept : all_) sequences.push_back(&kept.sequence);
  return sequences;
}

}  // namespace holdfast::engine
