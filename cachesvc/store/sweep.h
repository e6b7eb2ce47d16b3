// Brings catalog, rows and files together: at start, and when the index is
// rebuilt. Rows without a file go, files without a row are adopted, deletions
// that a crash cut short are finished. Runs in the store's mutation gate.
#ifndef HOLDFAST_CACHESVC_STORE_SWEEP_H_
#define HOLDFAST_CACHESVC_STORE_SWEEP_H_

#include <cstdint>
#include <deque>
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
  // settles what is incomplete or unreferenced.
  absl::Status Run(std::chrono::steady_clock::time_point limit);
  bool done() const { return done_; }
  const SweepReport& report() const { return report_; }

 private:
  using FileId = std::pair<FileKind, FileKey>;
  struct Orphan {
    FileKind kind;
    FileKey file_key;
    std::uint64_t bytes;
  };

  absl::Status RemoveTemporaries();
  absl::Status ListFolders();
  absl::Status ReadUse();
  absl::Status FinishTombstones();
  absl::Status ReadChunkRows();
  absl::Status ReadManifestRows(Table table);
  bool FileOf(FileKind kind, const FileKey& key, std::uint64_t bytes);
  void BadRow(Table table, std::string_view key);
  bool AddManifest(const ManifestRow& row);
  void Adopt(const Orphan& orphan);
  absl::Status WriteRows();
  absl::Status Settle();
  void KeepNewestSessions(std::vector<DroppedFile>& dropped);

  ChunkStore& store_;
  SweepReport report_;
  bool done_ = false;
  std::map<FileId, std::uint64_t> files_;  // without a row so far
  std::map<FileKey, HitRow> use_;
  std::set<FileKey> pins_;
  IndexBatch rows_;  // to be written
  std::deque<Orphan> orphans_;
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
