// Brings catalog, rows and files together: at start, and when the index is
// rebuilt. Rows without a file go, files without a row are adopted, deletions
// that a crash cut short are finished. Runs in the store's mutation gate.
#ifndef HOLDFAST_CACHESVC_STORE_SWEEP_H_
#define HOLDFAST_CACHESVC_STORE_SWEEP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cachesvc/store/chunk_store.h"

namespace holdfast::cachesvc {

class Sweep {
 public:
  explicit Sweep(ChunkStore& store) : store_(store) {}

  // Removes temporaries, reads all rows, lists all folders. The store's catalog
  // is empty before, and holds every manifest that has its chunks after.
  absl::Status Begin();
  // Adopts files without a row until all are, or `limit` is past; the last call
  // settles what is incomplete or unreferenced. One that cannot be read waits
  // for a later call, the last time it goes.
  absl::Status Run(std::chrono::steady_clock::time_point limit);
  bool done() const { return done_; }
  const SweepReport& report() const { return report_; }

  // While it is not done the catalog does not know everything, and who decides
  // by it asks here. All in the mutation gate.
  //
  // Reads what is left of sessions or anchors, which then wait for their
  // chunks. DeadlineExceeded: not all of it until then.
  absl::Status ReadManifests(FileKind kind, Deadline deadline);
  // The highest among the files of a session that wait; 0: there is none.
  std::uint64_t NewestSequence(const Sha256Digest& session_id) const;
  // Whether one of those is pinned.
  bool HasPinned(const Sha256Digest& session_id) const;
  // The name stands for a new file now, which the catalog has.
  void Replaced(FileKind kind, const FileKey& file_key);
  // Takes files out of the sweep: those that wait and that `chosen` takes, and,
  // with `unread`, those of the kind that were not read.
  std::vector<DroppedFile> Take(
      FileKind kind, bool unread,
      const std::function<bool(const ManifestRow&)>& chosen);

 private:
  using FileId = std::pair<FileKind, FileKey>;

  absl::Status RemoveTemporaries();
  absl::Status ListFolders();
  absl::Status ReadUse();
  absl::Status FinishTombstones();
  absl::Status ReadChunkRows();
  absl::Status ReadManifestRows(Table table);
  bool FileOf(FileKind kind, const FileKey& key, std::uint64_t bytes);
  void BadRow(Table table, std::string_view key);
  bool AddManifest(const ManifestRow& row);
  // Whether there is one of a kind that could not be read.
  bool Unread(FileKind kind) const;
  void AdoptNext();
  void Adopt(FileKind kind, const FileKey& file_key, std::uint64_t bytes);
  absl::Status WriteRows();
  absl::Status Settle();
  void ForgetUses();
  void KeepNewestSessions(std::vector<DroppedFile>& dropped);

  ChunkStore& store_;
  SweepReport report_;
  bool done_ = false;
  // Without a row so far, and how large. Sessions go first, chunks last: what a
  // session's files are is known early, and they wait in any case.
  std::map<FileId, std::uint64_t> files_;
  // Of those, what the disk gave an error for: no damage, tried again later.
  std::map<FileId, std::uint64_t> unread_;
  int tries_ = 1;
  bool last_try_ = false;  // in Run() alone
  std::map<FileKey, HitRow> use_;
  std::set<FileKey> pins_;
  IndexBatch rows_;  // to be written
  // Manifests that lack a chunk; it may still be adopted. `new_row`: theirs is
  // to be written then.
  struct Waiting {
    ManifestRow row;
    bool new_row;
  };
  std::vector<Waiting> waiting_;
  std::vector<DroppedFile> bad_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_SWEEP_H_
