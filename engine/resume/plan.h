// Where a prompt's prefill starts.
#ifndef HOLDFAST_ENGINE_RESUME_PLAN_H_
#define HOLDFAST_ENGINE_RESUME_PLAN_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/anchors/anchor.h"
#include "engine/pool/block_pool.h"
#include "engine/pool/provenance.h"
#include "engine/resume/grid_rule.h"
#include "engine/resume/sequence.h"
#include "kernels/backend.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {

// Where the rows at a request's resume point came from.
enum class CacheSource {
  kNone,
  kResident,  // rows of a seat, of a running request, or of no class
  kEnd,       // all rows of a seat's conversation
  kPinned,    // the head of an earlier one
  kParked,    // what an earlier one had past its head
  kStore,
  kDisk,
  kSpill,
  kResponse,  // no rows: an identical request was answered before
};
enum class MissReason {
  kNone,
  kCold,
  kNoAnchor,
  kEvicted,
  kBypass,
  kBelowMinimum,  // too short to be on the disk
  kCorrupt,       // a file failed a check
  kForeign,       // only files of another fingerprint
  kDeadline,      // the cache service answered too late
  kTooCostly,     // reading takes longer than computing
};
const char* CacheSourceName(CacheSource source);
// Empty for kNone.
const char* MissReasonName(MissReason reason);

// All that a prompt may be resumed from.
struct CachedStates {
  const BlockPool& pool;
  std::vector<const Sequence*> residents;  // of the seats
  std::vector<const Sequence*> kept = {};  // of earlier ones (Retained)
  // Of requests that run: as far as they are.
  std::vector<const Sequence*> running = {};
  // The model has recurrent sections: only an anchor is a place to resume at.
  bool recurrent = false;
  GridRule rule;
  // Of the request: rows of provenance `session` are for their own session's.
  std::string_view session_key = {};
};

// Rows by source, each named at most once.
using SourceRows = std::vector<std::pair<CacheSource, int>>;

struct ResumePlan {
  int position = 0;  // rows below it need no forward
  CacheSource source = CacheSource::kNone;
  MissReason miss = MissReason::kNone;  // when position is 0
  int taint = kUntainted;               // of the rows below the position
  std::vector<int> launches = {};       // as Sequence has them
  int launches_from = 0;
  // What is resumed at; nothing: rows alone, at any token.
  std::optional<AnchorKind> anchor;
  // The anchor's; null: the model needs none there.
  const std::byte* sections = nullptr;
  // They hold the rows, the last one perhaps more.
  std::vector<BlockId> blocks;
  // Anchors of that conversation at or below the position.
  AnchorList anchors;
  const Sequence* kept = nullptr;  // when it comes from one
  // Whose rows those below the position were.
  SourceRows rows_of = {};
};

// The deepest place to resume `prompt` at, not above `limit`. A hit is the
// minimum over rows and anchors: for a recurrent model the deepest anchor that
// the prompt shares and whose rows are all there; for another any token of the
// rows. The last row is taken from the cache only together with an anchor
// behind it, whose h_last gives the first logits. On a grid backend a resume is
// at a grid line with nothing but `grid` rows below; or where such a prompt
// ended, for that same prompt; or at the end of a resident or a kept
// conversation, for its own session. Changes nothing; blocks are
// not pinned and pointers not owned: use the plan before anything else changes.
ResumePlan PlanResume(const CachedStates& cached, const PrefixKey& root,
                      std::span<const KeyId> prompt, int limit);

// Gives `sequence`, which is empty, the state of the plan: whole blocks by
// reference, rows of a block that goes on differently by copy, the sections by
// copy, and, when the sequence is a pooled one, the
// anchors. `give` is asked for another block when there is none for the copy,
// until it says that there will be none. Then false: the sequence is empty
// again, and the prompt can only be resumed at the block's first row or below.
[[nodiscard]] bool StartSequence(const ResumePlan& plan,
                                 std::span<const KeyId> prompt,
                                 const kernels::KvShape& shape,
                                 std::size_t section_bytes,
                                 kernels::Backend& backend, BlockPool& pool,
                                 const std::function<bool()>& give,
                                 Sequence& sequence);

// The source of pool rows by what their block is kept for.
CacheSource SourceOf(RetentionClass c);
// Counts the first `rows` rows in these blocks by their source; those of seats
// as `of_seat`.
SourceRows RowsBySource(const BlockPool& pool, std::span<const BlockId> blocks,
                        int rows, CacheSource of_seat);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RESUME_PLAN_H_
