// The chunk store: chunk files shared by anchor files (the disk tier) and
// session files (the spill), in one folder with one index.
//
// Promises:
// * What WriteManifest() acknowledged is on the disk, complete. After a crash
//   at any moment it is intact or a clean miss.
// * What was deleted never comes back, also when the crash came in between.
// * Every byte on the disk is charged to a budget: what belongs to no anchor or
//   session (index, ledger, files that wait for something) to the disk tier's.
// * A failed check is a counted miss: the file goes, with every manifest that
//   needs it.
//
// Durable order: data, fdatasync, name, fsync of the folder, row. Deleting:
// tombstone, unlink, fsync of the folder, tombstone removed.
//
// Thread-safe. Lookups never wait for the disk; writers wait for each other,
// and all changes of names for each other, with deadlines.
#ifndef HOLDFAST_CACHESVC_STORE_CHUNK_STORE_H_
#define HOLDFAST_CACHESVC_STORE_CHUNK_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachesvc/format/cache_file.h"
#include "cachesvc/index/index.h"
#include "cachesvc/io/io_pool.h"
#include "cachesvc/store/candidate.h"
#include "cachesvc/store/catalog.h"
#include "cachesvc/store/gate.h"
#include "cachesvc/store/ledger.h"
#include "cachesvc/store/open_files.h"
#include "cachesvc/store/store_types.h"
#include "shared/clock/clock.h"
#include "shared/fs/file_system.h"

namespace holdfast::cachesvc {

// All outlive the store.
struct StoreParts {
  FileSystem& fs;
  IoPool& pool;
  Index& index;
  Clock& clock;
};

class ChunkStore {
 public:
  // Makes the sub-folders, sweeps, and is ready. DataLoss: the index is damaged
  // (move it aside, open a new one, call again).
  static absl::StatusOr<std::unique_ptr<ChunkStore>> Open(
      const StoreParts& parts, StoreOptions options);
  ~ChunkStore();
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  const SweepReport& sweep_report() const { return sweep_report_; }

  // The attached engine's, or nothing: files of others are invisible, count in
  // the budgets and are the first victims. Deletes nothing.
  void SetAttached(const std::optional<Sha256Digest>& fingerprint);

  // ---- requests
  // From memory; touches neither the disk nor any counter of use.
  std::vector<Candidate> Lookup(const LookupRequest& request) const;
  // Of a request that resumes there.
  void NoteUse(const FileKey& manifest);
  // Which chunks of a session or anchor need no rows: for each, whether the
  // store has it.
  std::vector<bool> HasChunks(std::span<const FileKey> chunks) const;

  // What the engine keeps with the session's newest file; waits for the disk.
  // NotFound: the store has no such session of the attached engine's.
  absl::StatusOr<std::string> SessionRecord(const Sha256Digest& session_id,
                                            Deadline deadline);

  // Waits for the disk. Errors: ResourceExhausted (budget, free space),
  // Aborted (lease lost, a shared chunk went), DeadlineExceeded,
  // FailedPrecondition (the store does not write), or what the disk said. After
  // any of them nothing of it is visible.
  absl::StatusOr<WriteResult> WriteManifest(const ManifestWrite& write);

  // ---- operators
  std::vector<ManifestInfo> ListManifests() const;
  std::vector<ChunkInfo> ListChunks() const;
  std::optional<ManifestInfo> ShowManifest(const FileKey& key) const;
  // Unknown keys are skipped; returns how many manifests went.
  absl::StatusOr<std::uint64_t> Evict(std::span<const FileKey> manifests);
  absl::StatusOr<std::uint64_t> EvictUnusedFor(FileKind kind,
                                               std::uint64_t seconds);
  // The least valuable until `bytes` are free.
  absl::StatusOr<std::uint64_t> EvictBytes(FileKind kind, std::uint64_t bytes);
  // All anchors or all sessions, pinned ones too; `foreign_only`: those of
  // fingerprints that are not attached.
  absl::StatusOr<std::uint64_t> Clear(FileKind kind, bool foreign_only);
  // Pinned manifests are never evicted and never expire; a session's pin goes
  // over to the file that replaces it. Persists.
  absl::Status SetPinned(const FileKey& manifest, bool pinned);
  // Reads and checks a manifest and all its chunks; a bad one is dropped when
  // `drop_bad`. DataLoss names the first bad file.
  absl::Status Verify(const FileKey& manifest, bool drop_bad,
                      Deadline deadline);
  // Throws the rows away and reads every file anew. Lookups miss meanwhile.
  // After an error Maintain() goes on with it.
  absl::StatusOr<SweepReport> RebuildIndex();
  // What a manifest's file says. NotFound, DataLoss, or what the disk said.
  absl::StatusOr<FileMeta> ReadManifest(const FileKey& manifest,
                                        Deadline deadline);
  // Which sessions the planned stop of an engine left resident, in its order.
  // Persists.
  absl::Status SetResidents(const Sha256Digest& fingerprint,
                            std::span<const FileKey> sessions);
  // The same, once: from then on there are none, also after a crash.
  // DeadlineExceeded: another change kept the store busy, and they stay.
  absl::StatusOr<std::vector<FileKey>> TakeResidents(
      const Sha256Digest& fingerprint, Deadline deadline);
  // Over budget afterwards: victims go at once. Persists.
  absl::Status SetLimits(const StoreLimits& limits);
  StoreLimits limits() const;

  // Call every minute or so: the service clock, counters of use, TTL, files
  // that the start left, deletions that failed.
  absl::Status Maintain();

  StoreUse Use() const;
  StoreCounters counters() const;
  const ServiceClock& service_clock() const { return *service_clock_; }

 private:
  friend class Restore;
  friend class Sweep;
  struct Staged;  // a manifest being written

  ChunkStore(const StoreParts& parts, StoreOptions options);
  ManifestInfo Describe(const CatalogManifest& manifest) const;

  // What the disk tier's budget pays for beside its files. mutex_ is held.
  std::uint64_t OutsideCatalog() const;
  void MeasureIndex();
  // Why `bytes` more cannot be written; empty: they can. mutex_ is held.
  std::string FloorReached(std::uint64_t free, std::uint64_t bytes) const;

  Deadline StepDeadline() const;
  std::string Path(FileKind kind, const FileKey& key) const;
  std::string Folder(FileKind kind) const;
  std::string TmpPath();
  void Count(std::uint64_t StoreCounters::*counter, std::uint64_t by = 1);

  // chunk_store_write.cc
  absl::Status StageAndPublish(const ManifestWrite& write, Staged& staged);
  absl::Status FindShared(const ManifestWrite& write, Staged& staged);
  absl::Status KnowOlder(const ManifestWrite& write, Staged& staged);
  // The rows of a chunk in host memory, wherever they lie.
  absl::StatusOr<FetchedRows> RowsOf(const ManifestWrite& write, std::size_t i,
                                     Staged& staged);
  absl::Status MayWrite(std::uint64_t bytes, Staged& staged);
  absl::Status MakeRoom(const ManifestWrite& write, Staged& staged);
  absl::Status RoomFor(const ManifestWrite& write, std::uint64_t bytes,
                       const Staged& staged);
  absl::Status StageChunks(const ManifestWrite& write, Staged& staged);
  absl::Status StageChunk(const ManifestWrite& write, std::size_t i,
                          Staged& staged);
  absl::Status StageManifest(const ManifestWrite& write, Staged& staged);
  absl::Status Publish(Staged& staged);
  absl::Status PublishNames(Staged& staged);
  void ForgetCondemned(const FileKey& key);
  absl::Status PublishRows(Staged& staged);
  bool OlderIsPinned(const ManifestRow& row) const;
  absl::Status AddToCatalog(Staged& staged);
  void Discard(Staged& staged);
  void RemoveTemporaries(const std::vector<std::string>& paths);
  void CountFailure(const absl::Status& status);

  // chunk_store_delete.cc. Those up to ReportBad() are called in the mutation
  // gate. An error means that the deletion itself is not durable; files that
  // only could not be unlinked yet stay condemned.
  absl::Status Drop(std::span<const FileKey> manifests,
                    std::uint64_t StoreCounters::*reason);
  absl::Status DeleteFiles(const std::vector<DroppedFile>& files);
  absl::Status FinishDeletions();
  absl::Status EvictTo(FileKind kind, std::uint64_t target);
  // Nothing while a sweep goes on: who pays for a chunk is known at its end.
  absl::Status TrimToBudgets();
  void UnlinkCondemned(std::vector<DroppedFile>& files);
  std::size_t condemned_count() const;
  std::vector<FileKey> Chosen(
      const std::function<bool(const CatalogManifest&)>& chosen) const;
  absl::StatusOr<std::uint64_t> DropChosen(
      const std::function<bool(const CatalogManifest&)>& chosen,
      std::uint64_t StoreCounters::*reason);
  // A file failed a check (`corrupt`) or is gone; it is the one of that
  // generation. Nothing when that has left the catalog: who held it open does
  // not speak for a newer one of its name.
  void ReportBad(FileKind kind, const FileKey& key, std::uint64_t generation,
                 bool corrupt);

  absl::Status FlushUse();
  // Forgets all files and looks for them anew. In both gates.
  absl::Status BeginSweep();
  bool SweepAgain() const;

  // chunk_store_ledger.cc. In the mutation gate, or before the store is open.
  absl::Status LoadSettings();
  absl::Status WriteSettings(const IndexBatch& batch);
  // Replaces the ledger's file when it says something else than the index.
  absl::Status SaveLedger();

  StoreParts parts_;
  const StoreOptions options_;
  const std::uint64_t boot_;
  SweepReport sweep_report_;
  std::unique_ptr<ServiceClock> service_clock_;

  Gate write_gate_;     // one writer at a time, over its whole write
  Gate mutation_gate_;  // names, rows and the catalog change together in it

  mutable std::mutex mutex_;  // guards all below; never held over I/O
  Catalog catalog_;
  StoreLimits limits_;
  std::optional<Sha256Digest> attached_;
  StoreCounters counters_;
  std::uint64_t next_tmp_ = 1;
  std::string not_writing_;  // why; empty: the store writes
  // Files that left the catalog and are still on the disk.
  std::map<FileKey, DroppedFile> condemned_;
  OpenFiles open_files_;
  // Temporaries that could not be unlinked, and their bytes.
  std::map<std::string, std::uint64_t> litter_;
  std::uint64_t unadopted_bytes_ = 0;  // of files the sweep has not reached
  std::uint64_t unknown_bytes_ = 0;    // of names that are not ours
  std::uint64_t index_bytes_ = 0;      // when last measured
  bool sweep_again_ = false;           // the last one could not begin
  // Uses since they were last merged into the index.
  std::map<FileKey, HitRow> fresh_use_;

  std::unique_ptr<class Sweep> sweep_;  // until everything is adopted; gated
  std::optional<Ledger> saved_;         // what the ledger's file says; gated
  std::uint64_t ledger_bytes_ = 0;      // guarded by mutex_
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_CHUNK_STORE_H_
