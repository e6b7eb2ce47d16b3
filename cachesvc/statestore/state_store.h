// The state store: whole snapshots in memory, for what is too short to be
// resident again and too young for the disk. Two classes: *session* entries, a
// conversation's state after its turn (with its taint), and *prefix* entries,
// the state at the longest line of a prefill that fits (grid rows only).
#ifndef HOLDFAST_CACHESVC_STATESTORE_STATE_STORE_H_
#define HOLDFAST_CACHESVC_STATESTORE_STATE_STORE_H_

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cachesvc/format/meta.h"
#include "cachesvc/store/candidate.h"
#include "shared/aligned_buffer.h"
#include "shared/cache_layout.h"
#include "shared/prefix_key.h"

namespace holdfast::cachesvc {

enum class EntryKind { kSession, kPrefix };

struct StateStoreOptions {
  std::uint64_t budget_bytes = std::uint64_t{2} << 30;
  std::uint64_t entry_bytes = std::uint64_t{1} << 30;  // of one snapshot
};

struct SnapshotState {
  std::uint64_t position = 0;
  StateKind kind = StateKind::kLine;
  Provenance provenance = Provenance::kGrid;
};

// What is to be kept; the bytes follow.
struct SnapshotSpec {
  EntryKind kind = EntryKind::kSession;
  Sha256Digest fingerprint{};
  CacheLayout layout;
  PrefixKey root{};
  std::vector<KeyId> key_ids;  // of all rows
  std::uint64_t taint = kNoTaint;
  std::vector<SnapshotState> states;
  Sha256Digest session_id{};  // of sessions; a newer one replaces the older
  std::string session_key;
  std::string record;
};

// Never changes once it is in the store; lives as long as somebody holds it.
struct Snapshot {
  SnapshotSpec spec;
  std::vector<AlignedBuffer> blocks;  // layout.BlockBytes() each
  std::vector<AlignedBuffer> states;  // as in spec.states, at SectionOffsets()
  std::uint64_t bytes = 0;            // charged
};

// What belongs to the end of a session's conversation with these rows.
struct EndRecord {
  Sha256Digest session_id{};
  std::vector<KeyId> key_ids;
  std::string record;
};

struct StateStoreStats {
  std::uint64_t sessions = 0;
  std::uint64_t prefixes = 0;
  std::uint64_t session_bytes = 0;
  std::uint64_t prefix_bytes = 0;
  std::uint64_t filling_bytes = 0;
  // Of snapshots that left the store while a restore was reading them; in the
  // budget until that ends.
  std::uint64_t held_bytes = 0;
  std::uint64_t stored = 0;
  std::uint64_t replaced = 0;
  std::uint64_t evicted_sessions = 0;
  std::uint64_t evicted_prefixes = 0;
  std::uint64_t refused_too_large = 0;
  std::uint64_t refused_in_use = 0;  // no room beside what is being read
  std::uint64_t hits = 0;
  std::uint64_t mismatches = 0;  // other key ids than the prompt's
};

struct StoreCandidate {
  std::uint64_t entry = 0;
  EntryKind kind = EntryKind::kSession;
  std::uint64_t position = 0;
  StateKind state = StateKind::kLine;
  Provenance provenance = Provenance::kGrid;
  std::uint64_t taint = kNoTaint;
  std::uint64_t bytes = 0;  // to copy: rows below the position and the state
  std::vector<KeyId> tail;  // as in Candidate
  Sha256Digest session_id{};
};

// Thread-safe. Nothing here waits.
class StateStore {
 public:
  explicit StateStore(const StateStoreOptions& options);

  // A snapshot whose room is made and whose bytes are being copied in. Not
  // visible before Commit(); destroyed without it, the room is given back.
  class Filling {
   public:
    ~Filling();
    Filling(const Filling&) = delete;
    Filling& operator=(const Filling&) = delete;
    std::span<std::byte> block(std::size_t i) {
      return snapshot_->blocks[i].span();
    }
    std::span<std::byte> state(std::size_t i) {
      return snapshot_->states[i].span();
    }
    std::size_t blocks() const { return snapshot_->blocks.size(); }
    void Commit();

   private:
    friend class StateStore;
    Filling(StateStore& store, std::shared_ptr<Snapshot> snapshot)
        : store_(store), snapshot_(std::move(snapshot)) {}
    StateStore& store_;
    std::shared_ptr<Snapshot> snapshot_;  // none after Commit()
  };

  // Makes room first, then takes the memory; what a restore reads stays, for
  // evicting it would free nothing. ResourceExhausted: larger than an entry may
  // be, or than what can be freed; InvalidArgument names what is
  // malformed. The store outlives the result.
  absl::StatusOr<std::unique_ptr<Filling>> Begin(SnapshotSpec spec);

  // The longest multiple of the grid, at most `tokens`, whose snapshot with one
  // state fits into an entry; 0: none.
  std::uint64_t LongestLine(const CacheLayout& layout,
                            std::uint64_t tokens) const;

  // Touches nothing.
  std::vector<StoreCandidate> Lookup(const LookupRequest& request) const;
  // The snapshot, once every key id up to the position equals the prompt's. A
  // use, unless `touch` is false: then nothing but the statistics changes.
  // Nothing: it is gone, or it is another prompt's.
  std::shared_ptr<const Snapshot> Take(std::uint64_t entry,
                                       std::uint64_t position,
                                       std::span<const KeyId> key_ids,
                                       bool touch = true);

  // Takes the place of the record that the session's entry with these rows came
  // with. Waits for that entry where it is not there yet, as long as few others
  // come.
  void PutRecord(EndRecord record);
  // What the engine keeps with the newest entry of the session; nothing: there
  // is none.
  std::optional<std::string> SessionRecord(
      const Sha256Digest& session_id) const;

  void DropForeign(const Sha256Digest& fingerprint);
  // Returns how many entries went.
  std::uint64_t Clear();
  bool Drop(std::uint64_t entry);
  // Gives memory back, least recently used first. Returns the bytes freed.
  std::uint64_t Free(std::uint64_t bytes);

  struct EntryInfo {
    std::uint64_t entry = 0;
    EntryKind kind = EntryKind::kSession;
    std::uint64_t tokens = 0;
    std::uint64_t bytes = 0;
    std::uint64_t hits = 0;
    std::string session_key;
  };
  // Most recently used first.
  std::vector<EntryInfo> List() const;
  StateStoreStats stats() const;

 private:
  struct Entry {
    std::uint64_t number = 0;
    std::shared_ptr<const Snapshot> snapshot;
    std::vector<PrefixKey> state_keys;  // block keys of its states
    std::string record;
    std::uint64_t bytes = 0;  // charged
    std::uint64_t hits = 0;
  };
  using Entries = std::list<Entry>;  // most recently used first
  struct StateRef {
    std::uint64_t entry;
    std::size_t state;
  };

  // Holds mutex_. What was erased is freed after it: a snapshot may take the
  // kernel longer than a lookup may wait.
  class Lock {
   public:
    explicit Lock(StateStore& store) : store_(store), lock_(store.mutex_) {}
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    StateStore& store_;
    std::unique_lock<std::mutex> lock_;
  };

  // Under a Lock, all of these.
  bool EvictOne();
  void Erase(Entries::iterator entry);
  std::uint64_t& BytesOf(EntryKind kind) {
    return kind == EntryKind::kSession ? stats_.session_bytes
                                       : stats_.prefix_bytes;
  }
  std::uint64_t Used() const {
    return stats_.session_bytes + stats_.prefix_bytes + stats_.filling_bytes +
           HeldBytes();
  }
  std::uint64_t HeldBytes() const;
  // Of entries that a restore reads.
  std::uint64_t ReadBytes() const;
  void Publish(std::shared_ptr<Snapshot> snapshot);
  // Of an entry: false when it is not this record's.
  bool TakeRecord(Entry& entry, EndRecord& record);
  void KeepEarly(EndRecord record);

  const StateStoreOptions options_;
  mutable std::mutex mutex_;
  Entries entries_;  // guarded by mutex_, like all below
  std::unordered_map<std::uint64_t, Entries::iterator> by_number_;
  std::unordered_map<PrefixKey, std::vector<StateRef>, PrefixKeyHash> states_;
  std::deque<EndRecord> early_;  // came before their entries; oldest first
  std::vector<std::shared_ptr<const Snapshot>> erased_;  // under this Lock
  // Erased, but read by a restore when they were.
  std::vector<std::pair<std::weak_ptr<const Snapshot>, std::uint64_t>> held_;
  // An engine may ask for an entry that another process offered: numbers of two
  // runs differ.
  std::uint64_t next_number_;
  StateStoreStats stats_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STATESTORE_STATE_STORE_H_
