#include "engine/resume/plan.h"

#include <algorithm>

#include "shared/cache_layout.h"
#include "shared/check.h"

namespace holdfast::engine {
namespace {

int CommonPrefix(std::span<const KeyId> a, std::span<const KeyId> b) {
  const auto ends = std::ranges::mismatch(a, b);
  return static_cast<int>(ends.in1 - a.begin());
}

// The chain of indexed blocks from the root. Sets `evicted` when the block at
// which it ends was there once.
std::vector<BlockId> FindChain(const BlockPool& pool, const PrefixKey& root,
                               std::span<const KeyId> prompt, bool& evicted) {
  std::vector<BlockId> chain;
  PrefixKey key = root;
  for (std::size_t at = 0; at + kBlockTokens <= prompt.size();
       at += kBlockTokens) {
    const auto ids = prompt.subspan(at, kBlockTokens);
    key = ChainPrefixKey(key, ids);
    const BlockId block = pool.Find(key, ids);
    if (block == kNoBlock) {
      evicted = pool.EvictedLately(key);
      break;
    }
    chain.push_back(block);
  }
  return chain;
}

int BlocksFor(int rows) { return (rows + kBlockTokens - 1) / kBlockTokens; }

// Looks for the deepest place; each Consider takes it when it is deeper than
// what was found before.
class Planner {
 public:
  Planner(const CachedStates& cached, std::span<const KeyId> prompt, int limit)
      : cached_(cached),
        prompt_(prompt),
        limit_(std::min(limit, static_cast<int>(prompt.size()))) {}

  // kKept: no seat has it, and the state behind its end may be gone. kRunning:
  // a request goes on with it.
  enum class Of { kSeat, kKept, kRunning };
  void Consider(const Sequence& from, Of of) {
    const bool kept = of == Of::kKept;
    const int shared = CommonPrefix(prompt_, from.ids);
    shared_ = std::max(shared_, shared);
    const int reach = std::min(limit_, shared);
    if (const int rows = AnyToken(std::min(reach, from.taint));
        rows > plan_.position) {
      Take(from, kept, rows);
    }
    if (const AnchorRef anchor = DeepestUsable(from.anchors, reach);
        anchor != nullptr && Better(anchor->position)) {
      Take(from, kept, anchor->position);
      plan_.anchor = anchor->kind;
      plan_.sections = anchor->sections;
    }
    // Of equals the seat's end anchor is the one that says most.
    const int end = from.rows();
    const bool serves = of == Of::kRunning ? CleanEnd(from) : EndServes(from);
    if (from.HasEnd() && end <= reach &&
        (kept ? Better(end) : end >= plan_.position) && serves) {
      Take(from, kept, end);
      if (of == Of::kSeat) plan_.source = CacheSource::kEnd;
      plan_.anchor = AnchorKind::kEnd;
      plan_.sections = from.sections.get();
    }
  }

  void ConsiderIndex(std::vector<BlockId> chain) {
    const int rows = static_cast<int>(chain.size()) * kBlockTokens;
    shared_ = std::max(shared_, rows);
    const int reach = AnyToken(std::min(limit_, rows));
    if (reach <= plan_.position) return;
    chain.resize(BlocksFor(reach));
    plan_ = {.position = reach,
             .source = SourceOf(cached_.pool.retention(chain.back())),
             .miss = MissReason::kNone,
             .taint = kUntainted,
             .launches = {},
             .launches_from = 0,
             .anchor = {},
             .sections = nullptr,
             .blocks = std::move(chain),
             .anchors = {},
             .kept = nullptr,
             .rows_of = {}};
  }

  ResumePlan Finish(bool evicted) {
    std::erase_if(plan_.anchors, [this](const AnchorRef& anchor) {
      return anchor->position > plan_.position;
    });
    plan_.rows_of = RowsBySource(cached_.pool, plan_.blocks, plan_.position,
                                 plan_.source == CacheSource::kEnd
                                     ? CacheSource::kEnd
                                     : CacheSource::kResident);
    if (plan_.position > 0) return std::move(plan_);
    // Less than a block in common is how any two conversations begin.
    const bool rows = (cached_.recurrent || !cached_.rule.any_split()) &&
                      shared_ >= kBlockTokens;
    plan_.miss = evicted ? MissReason::kEvicted
                 : rows  ? MissReason::kNoAnchor
                         : MissReason::kCold;
    return std::move(plan_);
  }

 private:
  void Take(const Sequence& from, bool kept, int position) {
    const bool clean = from.ProvenanceAt(position) == Provenance::kGrid;
    plan_ = {.position = position,
             .source = CacheSource::kResident,
             .miss = MissReason::kNone,
             .taint = clean ? kUntainted : from.taint,
             .launches = {},
             .launches_from = from.launches_from,
             .anchor = {},
             .sections = nullptr,
             .blocks = {},
             .anchors = from.anchors,
             .kept = kept ? &from : nullptr,
             .rows_of = {}};
    if (!clean) {
      const auto above = std::ranges::upper_bound(from.launches, position);
      plan_.launches.assign(from.launches.begin(), above);
    }
    for (int i = 0; i < BlocksFor(position); ++i) {
      plan_.blocks.push_back(from.table.block(i));
    }
    plan_.source = SourceOf(cached_.pool.retention(plan_.blocks.back()));
  }
  // Where rows alone are enough: the last one is forwarded for its logits.
  int AnyToken(int reach) const {
    if (cached_.recurrent) return 0;
    return cached_.rule.SharedBelow(
        std::min(reach, static_cast<int>(prompt_.size()) - 1));
  }
  // Does a cold run of this prompt have the same state at `position`, where a
  // step of a prefill ended?
  bool ColdPasses(int position) const {
    return cached_.rule.SharedAt(position) ||
           position == static_cast<int>(prompt_.size());
  }
  AnchorRef DeepestUsable(const AnchorList& anchors, int reach) const {
    for (; reach > 0; --reach) {
      const AnchorRef anchor = DeepestAnchor(anchors, reach);
      if (anchor == nullptr) break;
      reach = anchor->position;
      if (anchor->provenance == Provenance::kGrid && ColdPasses(reach)) {
        return anchor;
      }
    }
    return nullptr;
  }
  bool CleanEnd(const Sequence& from) const {
    const int end = from.rows();
    return from.ProvenanceAt(end) == Provenance::kGrid && ColdPasses(end);
  }
  // The prompt has all its rows.
  bool EndServes(const Sequence& from) const {
    if (CleanEnd(from)) return true;
    return !cached_.session_key.empty() &&
           cached_.session_key == from.session_key;
  }
  // Of equal depth an anchor is as good as rows alone, and better at the end.
  bool Better(int position) const {
    return position > plan_.position ||
           (position == plan_.position && !plan_.anchor && position > 0);
  }

  const CachedStates& cached_;
  const std::span<const KeyId> prompt_;
  const int limit_;
  int shared_ = 0;  // the most rows that anything has in common
  ResumePlan plan_;
};

}  // namespace

const char* CacheSourceName(CacheSource source) {
  switch (source) {
    case CacheSource::kResident:
      return "resident";
    case CacheSource::kEnd:
      return "end";
    case CacheSource::kPinned:
      return "pinned";
    case CacheSource::kParked:
      return "parked";
    case CacheSource::kStore:
      return "store";
    case CacheSource::kDisk:
      return "disk";
    case CacheSource::kResponse:
      return "response";
    case CacheSource::kSpill:
      return "spill";
    case CacheSource::kNone:
      break;
  }
  return "none";
}

const char* MissReasonName(MissReason reason) {
  switch (reason) {
    case MissReason::kCold:
      return "cold";
    case MissReason::kNoAnchor:
      return "no_anchor";
    case MissReason::kEvicted:
      return "evicted";
    case MissReason::kBypass:
      return "bypass";
    case MissReason::kBelowMinimum:
      return "below_minimum";
    case MissReason::kCorrupt:
      return "corrupt";
    case MissReason::kForeign:
      return "foreign";
    case MissReason::kDeadline:
      return "deadline";
    case MissReason::kTooCostly:
      return "too_costly";
    case MissReason::kNone:
      break;
  }
  return "";
}

CacheSource SourceOf(RetentionClass c) {
  switch (c) {
    case RetentionClass::kPinned:
      return CacheSource::kPinned;
    case RetentionClass::kParked:
      return CacheSource::kParked;
    default:
      return CacheSource::kResident;
  }
}

SourceRows RowsBySource(const BlockPool& pool, std::span<const BlockId> blocks,
                        int rows, CacheSource of_seat) {
  SourceRows counts;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const int first = static_cast<int>(i) * kBlockTokens;
    if (first >= rows) break;
    const CacheSource kept = SourceOf(pool.retention(blocks[i]));
    const CacheSource source = kept == CacheSource::kResident ? of_seat : kept;
    const auto at =
        std::ranges::find(counts, source, &SourceRows::value_type::first);
    const int here = std::min(kBlockTokens, rows - first);
    if (at != counts.end()) {
      at->second += here;
    } else {
      counts.emplace_back(source, here);
    }
  }
  return counts;
}

ResumePlan PlanResume(const CachedStates& cached, const PrefixKey& root,
                      std::span<const KeyId> prompt, int limit) {
  Planner planner(cached, prompt, limit);
  bool evicted = false;
  planner.ConsiderIndex(FindChain(cached.pool, root, prompt, evicted));
  for (const Sequence* resident : cached.residents) {
    if (resident->root == root) {
      planner.Consider(*resident, Planner::Of::kSeat);
    }
  }
  for (const Sequence* sequence : cached.running) {
    if (sequence->root == root) {
      planner.Consider(*sequence, Planner::Of::kRunning);
    }
  }
  for (const Sequence* kept : cached.kept) {
    if (kept->root == root) planner.Consider(*kept, Planner::Of::kKept);
  }
  return planner.Finish(evicted);
}

bool StartSequence(const ResumePlan& plan, std::span<const KeyId> prompt,
                   const kernels::KvShape& shape, std::size_t section_bytes,
                   kernels::Backend& backend, BlockPool& pool,
                   const std::function<bool()>& give, Sequence& sequence) {
  HF_CHECK(sequence.rows() == 0 && sequence.table.size() == 0);
  if (plan.sections != nullptr) {
    backend.Copy(plan.sections, section_bytes, sequence.sections.get());
  }
  const int whole = plan.position / kBlockTokens;
  const int rest = plan.position % kBlockTokens;
  for (int i = 0; i < whole; ++i) sequence.table.Adopt(plan.blocks[i]);
  if (rest > 0) {
    // Held while Append may evict and `give` may cut.
    BlockTable source(&pool, sequence.table.kind());
    source.Adopt(plan.blocks[whole]);
    while (!sequence.table.Append()) {
      if (give()) continue;
      sequence.table.Clear();
      return false;
    }
    backend.CopyBlockRows(shape, source.pointer(0), rest,
                          sequence.table.pointer(whole));
  }
  sequence.ids.assign(prompt.begin(), prompt.begin() + plan.position);
  sequence.state_rows = plan.sections != nullptr ? plan.position : 0;
  sequence.taint = plan.taint;
  sequence.launches = plan.launches;
  sequence.launches_from = plan.launches_from;
  if (plan.taint != kUntainted) {
    sequence.table.MarkSession(plan.taint / kBlockTokens);
  }
  if (sequence.table.kind() == BlockTable::Kind::kPooled) {
    sequence.anchors = plan.anchors;
  }
  return true;
}

}  // namespace holdfast::engine
