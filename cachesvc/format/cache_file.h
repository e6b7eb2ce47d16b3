// One cache file: written whole under a temporary name, or open for reading.
#ifndef HOLDFAST_CACHESVC_FORMAT_CACHE_FILE_H_
#define HOLDFAST_CACHESVC_FORMAT_CACHE_FILE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachesvc/format/meta.h"
#include "cachesvc/io/io_pool.h"
#include "shared/fs/file_system.h"

namespace holdfast::cachesvc {

// Requests of at most this size move a file's payload.
inline constexpr std::uint64_t kIoBytes = std::uint64_t{2} << 20;

// Writes payload and meta to a new file `path`; returns once all bytes were
// taken, with the sync of its data under way: the file is complete when the
// returned batch has ended well. The parts of `payload` are whole pages, at
// page boundaries in memory. Sets meta.piece_crcs, payload_bytes and
// meta_bytes. `keep_alive` owns the payload: when the deadline passes, the disk
// may still be reading it. On error the file, if there is one, is rubbish:
// unlink it.
absl::StatusOr<std::shared_ptr<IoBatch>> StartCacheFile(
    FileSystem& fs, IoPool& pool, const std::string& path, FileMeta& meta,
    std::span<const std::span<const std::byte>> payload,
    std::shared_ptr<const void> keep_alive, Deadline deadline);

// The same, and waits for the sync.
absl::Status WriteCacheFile(FileSystem& fs, IoPool& pool,
                            const std::string& path, FileMeta& meta,
                            std::span<const std::span<const std::byte>> payload,
                            std::shared_ptr<const void> keep_alive,
                            Deadline deadline);

// An open file whose meta region was checked. The payload was not: check every
// piece with CheckPieces(). Copies share the open file.
struct CacheFile {
  std::shared_ptr<File> file;
  std::shared_ptr<const FileMeta> meta;
};

// `meta_bytes` and `file_bytes` are as the index or a directory says; with
// meta_bytes 0 the first page is read first to learn it. DataLoss: the file
// must go. NotFound: there is none.
absl::StatusOr<CacheFile> OpenCacheFile(FileSystem& fs, IoPool& pool,
                                        const std::string& path,
                                        std::uint64_t meta_bytes,
                                        std::uint64_t file_bytes,
                                        Deadline deadline);

// The second half of OpenCacheFile for those who open many files at once: what
// was read of `file` is checked and decoded.
absl::StatusOr<CacheFile> DecodeCacheFile(std::shared_ptr<File> file,
                                          std::span<const std::byte> bytes,
                                          std::uint64_t file_bytes);

// `bytes` lie at `payload_offset`, a multiple of format::kCrcPiece, and end at
// another or at the payload's end. DataLoss names the file and the bad piece.
absl::Status CheckPieces(const CacheFile& file, std::uint64_t payload_offset,
                         std::span<const std::byte> bytes);

// Reads and checks the whole payload.
absl::Status VerifyPayload(IoPool& pool, const CacheFile& file,
                           Deadline deadline);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_FORMAT_CACHE_FILE_H_
