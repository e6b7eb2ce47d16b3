// What the pool keeps of conversations that no seat holds any more: pinned
// heads, parked sessions and what guests left. Nothing is copied: blocks and
// anchors change their class, and what goes is given back to the pool.
#ifndef HOLDFAST_ENGINE_RETENTION_RETAINED_H_
#define HOLDFAST_ENGINE_RETENTION_RETAINED_H_

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/anchors/anchor_slots.h"
#include "engine/pool/block_pool.h"
#include "engine/resume/sequence.h"
#include "engine/retention/cut.h"
#include "engine/retention/policy.h"

namespace holdfast::engine {

// Rows, anchors and, while nothing was cut, the state behind the last row. Its
// first blocks are the pinned head, the others are parked or a guest's.
struct KeptConversation {
  Sequence sequence;  // no sections: the state behind its end is gone
  RetentionClass rest = RetentionClass::kParked;
  int pinned_blocks = 0;
  int length = 0;         // tokens that it had in its seat
  bool reported = false;  // its loss was
};

// However cheap their rows are: each is compared with every prompt.
inline constexpr int kMaxKept = 64;
// Of one session: retries, edits and compactions.
inline constexpr int kMaxBranches = 4;

// Owned and used by the engine thread alone. Holds references to blocks, so it
// goes before the pool. After each call the budgets hold.
class Retained {
 public:
  // Since the start.
  struct Counters {
    std::uint64_t displaced = 0;
    std::uint64_t guests = 0;  // requests that ran as one
    // Blocks that went, by the class they were of.
    std::uint64_t blocks_cut[kRetentionClasses] = {};
    std::uint64_t anchors_thinned = 0;
    std::uint64_t anchors_cut = 0;  // with the rows below them
  };

  // `pool` and `slots` outlive this.
  Retained(BlockPool& pool, AnchorSlots& slots, const ResumeRule& rule,
           const RetentionBudgets& budgets);
  ~Retained() { Clear(); }
  Retained(const Retained&) = delete;
  Retained& operator=(const Retained&) = delete;

  const RetentionBudgets& budgets() const { return budgets_; }
  const ResumeRule& rule() const { return rule_; }

  // Called once for a conversation that is about to lose rows or its end, if it
  // was long enough to be spilled. Must not change what is kept, but may take
  // as long as a request may wait.
  using LossListener = std::function<void(const Sequence&)>;
  void OnLoss(LossListener listener) { on_loss_ = std::move(listener); }

  // A request takes the seat of this conversation. Keeps its head as pinned and
  // the rest as parked, as far as the budgets go: older ones make room first,
  // then it is cut from the top. Of its anchors, less those that `heir` holds,
  // it keeps kPinnedAnchors spread over the head and ParkedAnchors of those
  // past it.
  void Displace(Sequence sequence, const Displacement& by,
                const AnchorList& heir);
  // A guest ended: its whole prompt stays, at the lowest class, without a state
  // behind its end. Anchors that others hold stay theirs.
  void KeepGuest(Sequence sequence);
  // A seat has this conversation now, with its anchors: they are dropped here,
  // and so is everything that it contains.
  void Inherit(const Sequence& resident);
  // A request resumed in it. `sequence` is one of Sequences().
  void Touch(const Sequence* sequence);

  // Gives up one block: of guests, then of parked, then of pinned rows, each
  // oldest use first, from the tail; at most of class `most`. It may be one
  // that another conversation has too, so that none comes free. False when
  // there is nothing left.
  bool GiveBlock(RetentionClass most = RetentionClass::kPinned);
  // Reports the loss of the conversation that GiveBlock would cut next, before
  // it is. False when that was done, or there is none.
  bool WarnNext();
  void Clear();

  // Used longest ago first.
  const std::list<KeptConversation>& all() const { return all_; }
  std::vector<const Sequence*> Sequences() const;
  // What is charged to the budget of a class.
  std::uint64_t bytes(RetentionClass c) const;
  const Counters& counters() const { return counters_; }

  // Budgets, classes and charges, checked the long way. For tests.
  absl::Status CheckInvariants() const;
  std::string Describe() const;

 private:
  using Position = std::list<KeptConversation>::iterator;

  int AnchorsIn(const KeptConversation& kept, RetentionClass c) const;
  bool Over(RetentionClass c) const;
  void EnforceBudgets();
  void LimitBranches(const Sequence& newest);
  bool Demote();
  // The last block, or the end anchor alone when it is all that is parked.
  // Erases the conversation when nothing of it is left.
  void Cut(Position at);
  void Erase(Position at);
  void CountCut(int blocks, int pinned, RetentionClass rest);
  bool ReportLoss(KeptConversation& kept);
  // To the number that its classes may have, charged to them.
  void ThinAnchors(KeptConversation& kept);
  Position OldestOf(RetentionClass c);
  int HeadBlocks(const Sequence& sequence, int wanted_rows) const;

  BlockPool& pool_;
  AnchorSlots& slots_;
  const ResumeRule rule_;
  const RetentionBudgets budgets_;
  LossListener on_loss_;
  std::list<KeptConversation> all_;
  Counters counters_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RETENTION_RETAINED_H_
