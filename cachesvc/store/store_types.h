// What goes into the chunk store and what it says of itself.
#ifndef HOLDFAST_CACHESVC_STORE_STORE_TYPES_H_
#define HOLDFAST_CACHESVC_STORE_STORE_TYPES_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cachesvc/format/meta.h"
#include "shared/clock/clock.h"

namespace holdfast::cachesvc {

struct StoreLimits {
  std::uint64_t disk_budget_bytes = 50'000'000'000;
  std::uint64_t spill_budget_bytes = 40'000'000'000;
  // An anchor unused for this long goes; so does any file of a fingerprint that
  // is not attached.
  std::uint64_t ttl_s = 7 * 86400;
  // The store does not write when less would be left on the file system.
  std::uint64_t free_floor_bytes = 50'000'000'000;

  bool operator==(const StoreLimits&) const = default;
};

struct StoreOptions {
  std::string folder;  // exists, and no other process uses it
  StoreLimits limits;
  // Of each small step on the disk: meta regions, syncs, names. A write has
  // longer by what its bytes take on a slow drive.
  std::chrono::milliseconds io_deadline{30000};
  // The start adopts files without a row for this long at most; Maintain() goes
  // on with the rest.
  std::chrono::milliseconds sweep_limit{3000};
};

// Rows between two grid lines, of a manifest to be written.
struct ChunkWrite {
  Provenance provenance = Provenance::kGrid;
  // One for each view, of a `session` chunk; when empty, the store computes
  // them from the blocks. Not needed for `grid`.
  std::vector<ContentSum> sums;
  // Pool blocks, each layout.BlockBytes() long and aligned, the first rows
  // first. Empty when the caller has no rows because the store has the chunk
  // (HasChunks()): if it went meanwhile, the write fails.
  std::vector<const std::byte*> blocks;
  // So many instead, which ManifestWrite::fetch brings.
  std::uint32_t blocks_elsewhere = 0;

  std::size_t block_count() const {
    return blocks_elsewhere > 0 ? blocks_elsewhere : blocks.size();
  }
};

// Blocks as ChunkWrite::blocks has them, and what owns them.
struct FetchedRows {
  std::vector<const std::byte*> blocks;
  std::shared_ptr<const void> keep_alive;
};

struct StateWrite {
  std::uint64_t position = 0;
  StateKind kind = StateKind::kLine;
  Provenance provenance = Provenance::kGrid;
  // The sections at SectionOffsets(), StateBytes() long and aligned.
  std::span<const std::byte> bytes;
};

// One anchor or session with all its chunks. An anchor has one state, at the
// grid line where its key ids end, and grid chunks only. Once a session's file
// is durable, older files of its id are dropped.
struct ManifestWrite {
  FileKind kind = FileKind::kAnchor;
  Sha256Digest fingerprint{};
  CacheLayout layout;
  PrefixKey root{};
  // Key ids of rows 0 up to the end; the store cuts them into chunks at the
  // grid.
  std::span<const KeyId> key_ids;
  std::vector<ChunkWrite> chunks;
  std::vector<StateWrite> states;
  std::uint64_t taint = kNoTaint;
  Sha256Digest session_id{};  // of sessions, as are all below
  std::string session_key;
  std::string record;

  // Owns the memory of blocks and states until no I/O can read it any more.
  std::shared_ptr<const void> keep_alive;
  // Copies the rows of a chunk that lie elsewhere into host memory; asked for
  // each such chunk when it is named and when it is written. What it fails with
  // is the write's error.
  std::function<absl::StatusOr<FetchedRows>(std::size_t chunk)> fetch;
  // Whether the blocks have not been reused so far; asked after a chunk's last
  // byte was read. Empty: always.
  std::function<bool()> still_leased;
  // Chunk `i` was read: its blocks may be reused once the lease says so.
  std::function<void(std::size_t)> chunk_read;
  // Called before a chunk of so many bytes is written; may wait. Empty: at
  // full speed.
  std::function<void(std::uint64_t)> pace;
  // Past it, no further chunk is begun: an anchor is given up, a session is cut
  // to the chunks that were written and the states in them.
  Deadline deadline = Deadline::max();
};

struct WriteResult {
  FileKey file_key{};
  std::uint64_t end_position = 0;  // less than asked for: cut at the deadline
  std::uint32_t chunks_written = 0;
  std::uint32_t chunks_shared = 0;
  std::uint64_t bytes_written = 0;
  bool was_there = false;  // an anchor at this line, complete already
};

struct StoreCounters {
  std::uint64_t anchors_written = 0;
  std::uint64_t sessions_written = 0;
  std::uint64_t sessions_cut = 0;
  std::uint64_t chunks_written = 0;
  std::uint64_t chunks_shared = 0;
  std::uint64_t bytes_written = 0;
  // Refused or given up, by reason.
  std::uint64_t refused_free_space = 0;
  std::uint64_t refused_budget = 0;
  std::uint64_t leases_lost = 0;
  std::uint64_t deadlines_missed = 0;
  std::uint64_t write_errors = 0;
  // Manifests dropped, by reason.
  std::uint64_t evicted_anchors = 0;
  std::uint64_t evicted_sessions = 0;
  std::uint64_t expired = 0;
  std::uint64_t replaced_sessions = 0;
  std::uint64_t cleared = 0;
  std::uint64_t manifests_lost_to_damage = 0;
  // Files that failed a check, or were gone.
  std::uint64_t corrupt_files = 0;
  std::uint64_t missing_files = 0;
  std::uint64_t corrupt_rows = 0;
  // Answers to restores.
  std::uint64_t restores = 0;
  std::uint64_t restore_mismatches = 0;  // other key ids than the prompt's
  std::uint64_t restore_errors = 0;
  std::uint64_t bytes_read = 0;
};

// Of the sweep at start, and of rebuilding the index.
struct SweepReport {
  std::uint64_t temporaries = 0;           // removed
  std::uint64_t tombstones = 0;            // deletions finished
  std::uint64_t rows = 0;                  // that stand for a file
  std::uint64_t corrupt_rows = 0;          // removed; their files are orphans
  std::uint64_t dangling_rows = 0;         // without a file, or of another size
  std::uint64_t adopted = 0;               // files without a row
  std::uint64_t corrupt_files = 0;         // without a row, and bad: removed
  std::uint64_t incomplete_manifests = 0;  // a chunk is missing: removed
  std::uint64_t unreferenced_chunks = 0;   // removed
  std::uint64_t unknown_names = 0;         // left alone
  std::uint64_t unknown_bytes = 0;         // theirs; counted in the budget
  std::uint64_t left_for_later = 0;        // Maintain() goes on
  // The index was new, and settings and uses came from the ledger.
  bool from_ledger = false;
  std::string ledger_error;  // why not, though there is one
  std::uint64_t ms = 0;
};

struct StoreUse {
  std::uint64_t disk_bytes = 0;
  std::uint64_t spill_bytes = 0;
  // These count in the disk budget too. Deleted files that could not be
  // unlinked yet, temporaries among them; files that were not looked at yet;
  // deleted files that restores still read; files of names that are not ours;
  // the index, with a damaged one that was moved aside; the ledger.
  std::uint64_t condemned_bytes = 0;
  std::uint64_t unadopted_bytes = 0;
  std::uint64_t held_bytes = 0;
  std::uint64_t unknown_bytes = 0;
  std::uint64_t index_bytes = 0;
  std::uint64_t ledger_bytes = 0;
  std::uint64_t chunks = 0;
  std::uint64_t anchors = 0;
  std::uint64_t sessions = 0;
  std::uint64_t foreign_manifests = 0;
  std::uint64_t pinned_manifests = 0;
  // Why the store does not write now; empty: it does.
  std::string not_writing;

  // Of the disk tier's budget.
  std::uint64_t charged_bytes() const {
    return disk_bytes + condemned_bytes + unadopted_bytes + held_bytes +
           unknown_bytes + index_bytes + ledger_bytes;
  }
};

// One manifest, for operators.
struct ManifestInfo {
  FileKind kind = FileKind::kAnchor;
  FileKey file_key{};
  Sha256Digest fingerprint{};
  std::uint64_t end_position = 0;
  std::uint64_t taint = kNoTaint;
  std::uint64_t file_bytes = 0;
  std::uint64_t chunk_bytes = 0;  // of all its chunks, shared ones included
  std::uint32_t chunks = 0;
  std::uint32_t states = 0;
  std::uint64_t hits = 0;
  std::uint64_t age_s = 0;
  std::uint64_t unused_s = 0;
  bool pinned = false;
  bool foreign = false;
  std::string session_key;
};

struct ChunkInfo {
  FileKey file_key{};
  Sha256Digest fingerprint{};
  std::uint64_t first_position = 0;
  std::uint64_t end_position = 0;
  Provenance provenance = Provenance::kGrid;
  std::uint64_t file_bytes = 0;
  std::uint32_t anchors = 0;  // that use it
  std::uint32_t sessions = 0;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_STORE_TYPES_H_
