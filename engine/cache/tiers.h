// What lies outside the pool, as the engine uses it: the tiers of the cache
// service. No proto types: remote_tiers.h converts.
#ifndef HOLDFAST_ENGINE_CACHE_TIERS_H_
#define HOLDFAST_ENGINE_CACHE_TIERS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/cache/doorbell.h"
#include "engine/pool/block_pool.h"
#include "engine/pool/provenance.h"
#include "kernels/backend.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {

enum class Tier { kStore, kDisk, kSpill };
inline constexpr int kTiers = 3;
const char* TierName(Tier tier);

// What reading and computing cost, in units a second; 0: not measured.
struct PlannerRates {
  double prefill_tokens = 0;
  std::array<double, kTiers> read_bytes{};

  bool operator==(const PlannerRates&) const = default;
};

// A prompt by name. The spans outlive the call they are given to.
struct PromptView {
  PrefixKey root{};
  std::span<const KeyId> ids;
  std::span<const PrefixKey> block_keys;  // of every whole block of ids
  // Whose request it is; empty: nobody's. Conversations' own rows are for them.
  std::string_view session_key = {};
};

enum class StoredState {
  kLine,
  kEnd,
  kMessage,
  kTurn,  // a message: Request::turn
};

struct TierCandidate {
  Tier tier = Tier::kDisk;
  Sha256Digest key{};
  int position = 0;
  std::uint64_t bytes = 0;   // to read, with none of the rows in the pool
  int taint = kUntainted;    // its lowest row of provenance `session`
  bool own_session = false;  // kept by the conversation that asks
  StoredState state = StoredState::kLine;
};

struct TierLookup {
  enum class Outcome {
    kAnswered,
    kDetached,  // no cache service
    kLate,      // it did not answer within the deadline
  };
  Outcome outcome = Outcome::kDetached;
  std::vector<TierCandidate> candidates = {};  // deepest first
  int minimum_tokens = 0;  // shorter prompts are not written to the disk
  std::uint64_t store_entry_bytes = 0;  // larger snapshots are refused
  bool foreign = false;                 // only files of another fingerprint
  PlannerRates remembered = {};         // what engines of this model measured
};

// Whose state is to be stored as the prefill passes them.
struct AdmittedLines {
  std::vector<int> disk = {};  // ascending
  int store = 0;               // 0: none
};

// Where restored bytes go.
struct RestoreTarget {
  std::span<std::byte* const> blocks;  // of the sequence, from row 0
  std::size_t block_bytes = 0;
  int have_tokens = 0;  // rows below are there already: never written
  std::span<std::byte> state_image;
  // Whose memory the blocks are; null: host memory.
  kernels::Backend* backend = nullptr;
};

// What it refers to outlives the restore.
struct RestoreJob {
  TierCandidate candidate;
  std::span<const KeyId> ids;  // at least up to the position
  RestoreTarget target;
  std::chrono::milliseconds deadline{0};
  bool touch = true;  // counts as a use
  // Asked between pieces, by any thread: give up.
  std::function<bool()> stop = {};
  // Rung when there is something to Poll.
  std::shared_ptr<Doorbell> bell = {};
};

struct RestoreEnd {
  // The target is filled, or what it holds is undefined: NotFound, DataLoss,
  // DeadlineExceeded, Cancelled (`stop`), FailedPrecondition (other ids),
  // Unavailable.
  absl::Status status;
  double seconds = 0;  // since its start, whenever that is asked
};

// A restore under way. Destroying it gives it up; nothing writes to the target
// any more then.
class TierRestore {
 public:
  virtual ~TierRestore() = default;
  // Does what of it is the engine thread's. Nothing: it goes on, at most until
  // its deadline.
  virtual std::optional<RestoreEnd> Poll() = 0;
};

// A word of the lease table, and what it holds while the lease lasts.
struct LeaseRef {
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
};

// One state with all rows below it, in leased blocks.
struct StoreJob {
  struct State {
    int position = 0;
    StoredState kind = StoredState::kLine;
    std::vector<BlockId> blocks;  // that hold the image
  };
  Tier tier = Tier::kDisk;
  PrefixKey root{};
  std::vector<KeyId> ids;
  std::vector<BlockId> blocks;  // of the rows
  std::vector<State> states;
  LeaseRef lease;
  std::string session_key;
  std::string record;  // of a conversation: record_bytes.h
  std::chrono::milliseconds deadline{0};
  int taint = kUntainted;
  bool resident = false;  // at a planned stop: read it back at the next start
  bool pinned = false;    // of the spill: kept until it is unpinned
};

// A conversation that was resident at the last planned stop.
struct KeptResident {
  TierCandidate candidate;  // its end
  PrefixKey root{};
  std::vector<KeyId> ids;
  std::string session_key;
  // Where it has states of these kinds, ascending; of the same key.
  std::vector<int> lines;
  std::vector<int> messages;
  int turn = 0;  // which of them is Request::turn; 0: none
};

enum class StoreOutcome { kStored, kWasThere, kRefused, kFailed, kDropped };
inline constexpr int kStoreOutcomes = 5;
const char* StoreOutcomeName(StoreOutcome outcome);

// Everything but the construction, and a lookup before there is an engine
// thread, is called by the engine thread alone. Nothing here makes a request
// fail: the worst is a miss. Outlives its restores.
class CacheTiers {
 public:
  virtual ~CacheTiers() = default;

  virtual bool attached() const = 0;
  // What was measured by now: goes with the next lookup, to be remembered for
  // the next engine of this model.
  virtual void NoteMeasured(const PlannerRates& rates) = 0;
  // Waits at most as long as a lookup may take.
  virtual TierLookup Lookup(const PromptView& prompt) = 0;
  // Lines of a prompt that was resumed at `resumed_at`. Waits no longer than
  // Lookup.
  virtual AdmittedLines Admit(const PromptView& prompt, int resumed_at,
                              const std::string& session_key, int head) = 0;
  // Starts to fill the target, and waits for nobody.
  virtual std::unique_ptr<TierRestore> StartRestore(RestoreJob job) = 0;
  // Queues a store. `done` is called once, on any thread, when its blocks are
  // not read any more.
  virtual void Store(StoreJob job, std::function<void(StoreOutcome)> done) = 0;
  // Asks for memory of the state store, which the machine is short of. Returns
  // the bytes given back. Waits no longer than Lookup.
  virtual std::uint64_t FreeStore(std::uint64_t bytes) = 0;
  // A planned stop has ended: what was stored as `resident` is what the next
  // start reads back. Waits at most deadlines::kControl.
  virtual void Drained() = 0;
  // What the last planned stop left, in the order it was stored; none when the
  // last engine of this model ended otherwise. Each is told once. Waits at most
  // deadlines::kControl, or a few times that for a service that answers late.
  virtual std::vector<KeptResident> Residents() = 0;
};

// Starts a restore and waits for its end, which its deadline bounds. On the
// engine thread, when nothing else is to be done.
absl::Status RestoreAndWait(CacheTiers& tiers, RestoreJob job);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_TIERS_H_
