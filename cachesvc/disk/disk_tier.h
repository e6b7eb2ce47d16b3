// What the cache service keeps on disk: the disk tier (anchors) and the session
// spill (conversations) over one chunk store, with everything around it.
#ifndef HOLDFAST_CACHESVC_DISK_DISK_TIER_H_
#define HOLDFAST_CACHESVC_DISK_DISK_TIER_H_

#include <array>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "cachesvc/admission/admission.h"
#include "cachesvc/disk/cost_book.h"
#include "cachesvc/disk/sessions_seen.h"
#include "cachesvc/lease/leased_store.h"
#include "cachesvc/restore/piece_source.h"
#include "cachesvc/store/gate.h"
#include "cachesvc/store/open_store.h"
#include "cachesvc/store/restore.h"
#include "cachesvc/writer/store_writer.h"

namespace holdfast::cachesvc {

struct DiskOptions {
  std::string folder;
  StoreLimits limits;
  bool disk_cache = true;     // anchors are offered and written
  bool session_spill = true;  // so are sessions
  AdmissionRules admission;
  // Of stores while an engine works; at its planned stop there is no limit.
  std::uint64_t write_bytes_per_s = 1'000'000'000;
  IoPoolKind io = IoPoolKind::kBest;
};

// Since the start, of anchors or sessions.
struct DiskUse {
  std::uint64_t lookups = 0;
  std::uint64_t hits = 0;  // restores handed over whole
  std::uint64_t hit_tokens = 0;
  std::uint64_t hit_bytes = 0;
  double hit_ms = 0;
  std::uint64_t stores = 0;
  std::uint64_t written_bytes = 0;
  double write_ms = 0;
};

struct AdmitRequest {
  PrefixKey root{};
  // Of every whole block of the prompt, ascending.
  std::span<const PrefixKey> block_keys;
  std::uint64_t grid_tokens = 0;
  std::uint64_t resumed_at = 0;  // rows below are not forwarded
  std::string session_key;
  std::uint64_t head = 0;  // where the next session parts; 0: not known
};

struct DiskLookup {
  std::vector<Candidate> candidates;
  bool foreign = false;  // only files of other fingerprints
};

struct StoreAnswer {
  enum class Outcome { kStored, kWasThere, kRefused };
  Outcome outcome = Outcome::kRefused;
  std::string reason = {};  // of a refusal: as StoreResponse.reason
  std::string detail = {};
  std::uint64_t bytes_written = 0;
  std::uint64_t end_position = 0;
  std::optional<FileKey> file_key = {};
};

// A conversation that was resident at a planned stop.
struct StoredResident {
  FileMeta meta;            // of its session file
  std::uint64_t bytes = 0;  // of it and its chunks
};

// Thread-safe.
class DiskTier {
 public:
  // Takes the folder and opens what is in it (OpenStore). `staging` is memory
  // that restores are read into; it outlives this.
  static absl::StatusOr<std::unique_ptr<DiskTier>> Open(
      const DiskOptions& options, std::span<std::byte> staging);
  ~DiskTier();

  // An engine of that fingerprint has attached, or the same process again.
  // Waits for nothing.
  void Attached(const Sha256Digest& fingerprint, std::uint32_t engine_pid);
  // The attached engine's planned stop has ended: the sessions that it stored
  // as resident are what the next one reads back. Returns how many.
  absl::StatusOr<std::size_t> Drained(const Sha256Digest& fingerprint);
  // What the predecessor of the attached engine left, stored first first; once.
  // Whatever ends that engine, a third one is not offered it, whether it was
  // asked for or not. DeadlineExceeded: not all could be read until then; when
  // the same engine asks again, the rest is.
  absl::StatusOr<std::vector<StoredResident>> TakeResidents(
      const Sha256Digest& fingerprint, std::uint32_t engine_pid,
      Deadline deadline);

  DiskLookup Lookup(const LookupRequest& request);
  // Lines that get an anchor, ascending; counts those that will be forwarded.
  std::vector<std::uint64_t> Admit(const AdmitRequest& request);
  // NotFound when the tier is off, else as FileSource::Open.
  absl::StatusOr<std::unique_ptr<PieceSource>> OpenRestore(
      FileKind kind, const RestoreRequest& request, Deadline deadline);
  // A restore was handed over whole.
  void NoteHit(FileKind kind, const FileKey& manifest, bool touch,
               std::uint64_t tokens, std::uint64_t bytes, double ms);
  // Waits until it is durable or refused, at most until the store's deadline.
  // Stores of anchors are held to the rate.
  StoreAnswer Store(LeasedStore store);

  const DiskOptions& options() const { return options_; }
  ChunkStore& store() { return *opened_->store; }
  const ChunkStore& store() const { return *opened_->store; }
  std::uint64_t FreeBytes() const;
  const std::string& io() const { return opened_->pool->Describe(); }
  DiskUse use(FileKind kind) const;
  CostBook& costs() { return costs_; }

 private:
  // Residents taken from the store, and not told yet.
  struct HandOver {
    std::vector<FileKey> keys;
    std::size_t next = 0;
    int tries = 0;  // of that one
    std::vector<StoredResident> read;
  };

  DiskTier(const DiskOptions& options, std::unique_ptr<OpenedStore> opened);
  absl::StatusOr<std::vector<std::uint64_t>> PlanLines(
      const AdmitRequest& request);
  // A new install's: later ones know it from the index.
  void MeasureDrive();
  void MaintainLoop();
  // When that has changed. On the maintainer, and before it starts.
  void LogWhetherItWrites();
  // One more of them is read, or passed over for good.
  absl::Status ReadNext(HandOver& hand_over, Deadline deadline);
  DiskUse& UseOf(FileKind kind) {
    return use_[kind == FileKind::kSession ? 1 : 0];
  }
  bool Offers(FileKind kind) const {
    return kind == FileKind::kSession ? options_.session_spill
                                      : options_.disk_cache;
  }
  StoreAnswer Refused(const absl::Status& status) const;
  StoreAnswer Wait(std::future<absl::StatusOr<WriteResult>>& written,
                   Deadline deadline);

  const DiskOptions options_;
  const std::unique_ptr<OpenedStore> opened_;
  LineCounts lines_;
  CostBook costs_;
  SessionsSeen sessions_;
  StoreWriter writer_;

  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  bool foreign_ = false;   // guarded by mutex_
  // Of the attached engine: what it stored as resident, in that order. Guarded
  // by mutex_.
  std::vector<FileKey> residents_;
  // The first process of each model that attached since its last planned stop:
  // what that left is for it alone. Guarded by mutex_.
  std::map<Sha256Digest, std::uint32_t> heirs_;
  Gate hand_over_gate_;
  std::map<Sha256Digest, HandOver> hand_overs_;  // in the gate
  std::array<DiskUse, 2> use_;                   // guarded by mutex_
  std::string logged_not_writing_;               // the maintainer's
  std::thread maintainer_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_DISK_DISK_TIER_H_
