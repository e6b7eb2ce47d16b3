// Reading a conversation's state back.
#ifndef HOLDFAST_CACHESVC_STORE_RESTORE_H_
#define HOLDFAST_CACHESVC_STORE_RESTORE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachesvc/format/cache_file.h"
#include "cachesvc/store/chunk_store.h"

namespace holdfast::cachesvc {

struct RestoreRequest {
  Sha256Digest fingerprint{};
  FileKey manifest{};
  std::uint64_t position = 0;  // of one of its states
  // The prompt's, at least up to the position. Every row's id is compared with
  // the files' before a byte of it can be read.
  std::span<const KeyId> key_ids;
};

// One read of at most kIoBytes: a part of a chunk's blocks, or of the state. In
// the order of their rows, the state last.
struct RestorePiece {
  enum class What { kRows, kState };
  What what = What::kRows;
  std::uint32_t file = 0;            // of this restore, for Restore itself
  std::uint64_t payload_offset = 0;  // in that file's payload
  std::uint64_t bytes = 0;           // to read; whole pages
  // What of it is wanted: `use` bytes from `skip` on (sums cover more). They go
  // to `target_offset` of the chunk's blocks, of which block b begins at
  // b * layout.BlockBytes(), or of the state, whose sections begin at
  // SectionOffsets().
  std::uint64_t skip = 0;
  std::uint64_t use = 0;
  std::uint64_t target_offset = 0;
  // Of rows: the position of the chunk's first row.
  std::uint64_t chunk_position = 0;
};

// A restore under way. Every file it needs is open before this exists, so an
// eviction cannot break it; every piece is checked before it is handed out.
// Not thread-safe. The store outlives it.
class Restore {
 public:
  // NotFound: evicted or gone meanwhile. DataLoss: a file failed a check; it
  // went, with all that need it. FailedPrecondition: another fingerprint, or
  // other key ids (a miss, no damage). DeadlineExceeded, or what the disk said.
  static absl::StatusOr<std::unique_ptr<Restore>> Open(
      ChunkStore& store, const RestoreRequest& request, Deadline deadline);

  const std::vector<RestorePiece>& pieces() const { return pieces_; }
  std::uint64_t bytes() const { return bytes_; }
  // The layout that the files were written under: names and sizes.
  const CacheLayout& layout() const;
  // Of the session file or anchor; its record and key ids too.
  const FileMeta& manifest() const { return *files_.front().meta; }
  const StateMeta& state() const { return manifest().states[state_]; }

  // Starts the read of a piece into `memory`, aligned and at least
  // piece.bytes long, which `keep_alive` owns: the disk may write it until
  // FinishRead() says OK or an error other than DeadlineExceeded, or until
  // keep_alive is let go.
  absl::Status StartRead(std::size_t piece, std::span<std::byte> memory,
                         std::shared_ptr<const void> keep_alive);
  // Waits for it and checks its sums. On any error the whole restore is over.
  absl::Status FinishRead(std::size_t piece, Deadline deadline);

 private:
  struct Read {
    std::shared_ptr<IoBatch> batch;
    std::span<std::byte> memory;
  };

  explicit Restore(ChunkStore& store) : store_(store) {}

  absl::Status OpenFiles(const RestoreRequest& request, Deadline deadline);
  absl::Status OpenOne(FileKind kind, const FileKey& key);
  absl::Status ReadMetas(Deadline deadline);
  absl::Status Check(const RestoreRequest& request);
  absl::Status CheckChunk(const RestoreRequest& request, std::size_t i,
                          PrefixKey& parent);
  void CutPieces(const RestoreRequest& request);
  absl::Status Failed(std::size_t file, absl::Status status);

  struct Opened {
    FileKind kind;
    FileKey file_key;
    std::uint64_t generation;
    std::uint64_t meta_bytes;
    std::uint64_t file_bytes;
    std::shared_ptr<File> file;
  };

  ChunkStore& store_;
  std::vector<Opened> opened_;
  std::vector<CacheFile> files_;  // the manifest, then chunks
  std::size_t state_ = 0;
  std::vector<RestorePiece> pieces_;
  std::vector<Read> reads_;
  std::uint64_t bytes_ = 0;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_RESTORE_H_
