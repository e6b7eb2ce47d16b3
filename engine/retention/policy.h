// What the pool keeps of conversations, as pure functions.
#ifndef HOLDFAST_ENGINE_RETENTION_POLICY_H_
#define HOLDFAST_ENGINE_RETENTION_POLICY_H_

#include <cstdint>
#include <span>

#include "engine/anchors/anchor.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {

// Of a pinned head, spread over it.
inline constexpr int kPinnedAnchors = 8;
// Of a parked session, its newest, the newest turn's among them; the one behind
// its last row not counted.
inline constexpr int kParkedAnchors = 4;
// A guest's: before the message at which the next of its kind most likely parts
// and at its prompt's end.
inline constexpr int kGuestAnchors = 2;

struct RetentionBudgets {
  // A request of at most so many tokens may be a guest.
  int guest_max_tokens = 8192;
  // Blocks and anchors that guests leave.
  std::uint64_t stash_bytes = std::uint64_t{1} << 30;
  // Heads with their anchors.
  std::uint64_t pin_bytes = std::uint64_t{4} << 30;
  // What is past the heads, with its anchors.
  std::uint64_t park_bytes = std::uint64_t{4} << 30;
  // A conversation of at least so many tokens is spilled before it loses rows.
  int spill_min_tokens = 16384;
};

// May a prompt of so many tokens not displace a resident whose prompt had
// `resident_tokens`? It must be short for itself and against it.
bool IsGuest(int prompt_tokens, int resident_tokens,
             const RetentionBudgets& budgets);

// The rows that two sequences begin with.
int SharedRows(std::span<const KeyId> a, std::span<const KeyId> b);

// Why a conversation leaves its seat.
struct Displacement {
  int shared_rows = 0;        // with the request that takes the seat
  bool same_session = false;  // that request is of the same session
};

// How many rows of a displaced conversation are its head: what it shares with
// whoever displaces it or, when its client said where the next session of the
// same folder parts (`known_head`), up to there; all of them when a request of
// the same session displaces it that goes on with none of it, a compaction: how
// much of it the next turn begins with is not known yet. Whole blocks, the last
// one included, of rows that anyone may use (`shareable_rows`).
int HeadRows(const Displacement& by, int known_head, int shareable_rows);

// At most `count` of the anchors: the deepest, and those whose removal would
// leave the largest gaps below `end`.
AnchorList SpreadAnchors(AnchorList anchors, int count, int end);
// The deepest `count` of them.
AnchorList NewestAnchors(const AnchorList& anchors, int count);
// The same, but that the newest turn's is one of them.
AnchorList ParkedAnchors(const AnchorList& anchors, int count);
// The anchor at which the next user message's prompt may part; null: none.
AnchorRef TurnAnchor(const AnchorList& anchors);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RETENTION_POLICY_H_
