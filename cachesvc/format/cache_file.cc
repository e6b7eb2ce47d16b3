#include "cachesvc/format/cache_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

absl::Status Run(IoPool& pool, std::vector<IoRequest> requests,
                 std::shared_ptr<const void> keep_alive, Deadline deadline) {
  auto batch = pool.Submit(std::move(requests), std::move(keep_alive));
  if (!batch.ok()) return batch.status();
  return (*batch)->WaitAll(deadline);
}

void AddWrites(const std::shared_ptr<File>& file, std::uint64_t& offset,
               std::span<const std::byte> part,
               std::vector<IoRequest>& requests) {
  while (!part.empty()) {
    const auto n = static_cast<std::size_t>(
        std::min<std::uint64_t>(part.size(), kIoBytes));
    requests.push_back(IoRequest::Write(file, offset, part.first(n)));
    part = part.subspan(n);
    offset += n;
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<IoBatch>> StartCacheFile(
    FileSystem& fs, IoPool& pool, const std::string& path, FileMeta& meta,
    std::span<const std::span<const std::byte>> payload,
    std::shared_ptr<const void> keep_alive, Deadline deadline) {
  meta.payload_bytes = 0;
  for (const auto& part : payload) meta.payload_bytes += part.size();
  // The sums' room is known before the sums: they are computed while the disk
  // reads the same bytes.
  meta.piece_crcs.assign(
      (meta.payload_bytes + format::kCrcPiece - 1) / format::kCrcPiece, 0);
  EncodeMeta(meta);
  auto file = fs.Open(path, OpenMode::kCreate);
  if (!file.ok()) return file.status();
  if (auto s = (*file)->Allocate(meta.file_bytes()); !s.ok()) return s;
  std::vector<IoRequest> requests;
  std::uint64_t offset = meta.meta_bytes;
  for (const auto& part : payload) AddWrites(*file, offset, part, requests);
  const auto rows = pool.Submit(std::move(requests), std::move(keep_alive));
  if (!rows.ok()) return rows.status();
  meta.piece_crcs = PieceCrcs(payload);
  auto encoded = std::make_shared<AlignedBuffer>(EncodeMeta(meta));
  requests = {};
  offset = 0;
  AddWrites(*file, offset, encoded->span(), requests);
  auto written = Run(pool, std::move(requests), encoded, deadline);
  // Also after an error: a caller that may reuse the rows knows that nobody
  // reads them.
  auto rows_written = (*rows)->WaitAll(deadline);
  if (!written.ok()) return written;
  if (!rows_written.ok()) return rows_written;
  return pool.Submit({IoRequest::Sync(*file)}, nullptr);
}

absl::Status WriteCacheFile(FileSystem& fs, IoPool& pool,
                            const std::string& path, FileMeta& meta,
                            std::span<const std::span<const std::byte>> payload,
                            std::shared_ptr<const void> keep_alive,
                            Deadline deadline) {
  const auto sync = StartCacheFile(fs, pool, path, meta, payload,
                                   std::move(keep_alive), deadline);
  if (!sync.ok()) return sync.status();
  return (*sync)->WaitAll(deadline);
}

absl::StatusOr<CacheFile> DecodeCacheFile(std::shared_ptr<File> file,
                                          std::span<const std::byte> bytes,
                                          std::uint64_t file_bytes) {
  auto meta = DecodeMeta(bytes, file_bytes);
  if (!meta.ok()) {
    return absl::Status(meta.status().code(),
                        fmt::format("{}: {}", file->path(),
                                    std::string(meta.status().message())));
  }
  return CacheFile{std::move(file),
                   std::make_shared<const FileMeta>(*std::move(meta))};
}

absl::StatusOr<CacheFile> OpenCacheFile(FileSystem& fs, IoPool& pool,
                                        const std::string& path,
                                        std::uint64_t meta_bytes,
                                        std::uint64_t file_bytes,
                                        Deadline deadline) {
  auto file = fs.Open(path, OpenMode::kRead);
  if (!file.ok()) return file.status();
  const auto read = [&](std::uint64_t bytes)
      -> absl::StatusOr<std::shared_ptr<AlignedBuffer>> {
    auto buffer = std::make_shared<AlignedBuffer>(bytes);
    auto s = Run(pool, {IoRequest::Read(*file, 0, buffer->span())}, buffer,
                 deadline);
    if (absl::IsOutOfRange(s)) {
      return absl::DataLossError(std::string(s.message()));
    }
    if (!s.ok()) return s;
    return buffer;
  };
  if (meta_bytes == 0) {
    const auto page = read(format::kPadding);
    if (!page.ok()) return page.status();
    const auto size = MetaBytes((*page)->span());
    if (!size.ok()) {
      return absl::DataLossError(
          fmt::format("{}: {}", path, std::string(size.status().message())));
    }
    if (*size == format::kPadding) {
      return DecodeCacheFile(*file, (*page)->span(), file_bytes);
    }
    meta_bytes = *size;
  }
  if (meta_bytes > file_bytes) {
    return absl::DataLossError(fmt::format("{}: shorter than its meta", path));
  }
  const auto buffer = read(meta_bytes);
  if (!buffer.ok()) return buffer.status();
  return DecodeCacheFile(*file, (*buffer)->span(), file_bytes);
}

absl::Status CheckPieces(const CacheFile& file, std::uint64_t payload_offset,
                         std::span<const std::byte> bytes) {
  const FileMeta& meta = *file.meta;
  std::size_t piece =
      static_cast<std::size_t>(payload_offset / format::kCrcPiece);
  if (payload_offset % format::kCrcPiece != 0 ||
      payload_offset + bytes.size() > meta.payload_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("{}: no pieces at {}, {} bytes", file.file->path(),
                    payload_offset, bytes.size()));
  }
  while (!bytes.empty()) {
    const std::uint64_t whole = std::min<std::uint64_t>(
        format::kCrcPiece, meta.payload_bytes - piece * format::kCrcPiece);
    if (bytes.size() < whole) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: piece {} is not all there", file.file->path(), piece));
    }
    const auto n = static_cast<std::size_t>(whole);
    if (Crc32c(bytes.first(n)) != meta.piece_crcs[piece]) {
      return absl::DataLossError(fmt::format(
          "{}: wrong sum of MiB {} of the payload", file.file->path(), piece));
    }
    bytes = bytes.subspan(n);
    ++piece;
  }
  return absl::OkStatus();
}

absl::Status VerifyPayload(IoPool& pool, const CacheFile& file,
                           Deadline deadline) {
  auto buffer = std::make_shared<AlignedBuffer>(
      std::min(kIoBytes, file.meta->payload_bytes));
  for (std::uint64_t at = 0; at < file.meta->payload_bytes; at += kIoBytes) {
    const auto part = buffer->span().first(static_cast<std::size_t>(
        std::min(kIoBytes, file.meta->payload_bytes - at)));
    if (auto s =
            Run(pool,
                {IoRequest::Read(file.file, file.meta->meta_bytes + at, part)},
                buffer, deadline);
        !s.ok()) {
      return s;
    }
    if (auto s = CheckPieces(file, at, part); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace holdfast::cachesvc
