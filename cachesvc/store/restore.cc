#include "cachesvc/store/restore.h"

#include <algorithm>
#include <utility>

#include "cachesvc/format/names.h"
#include "fmt/format.h"

namespace holdfast::cachesvc {

absl::StatusOr<std::unique_ptr<Restore>> Restore::Open(
    ChunkStore& store, const RestoreRequest& request, Deadline deadline) {
  std::unique_ptr<Restore> restore(new Restore(store));
  absl::Status status = restore->OpenFiles(request, deadline);
  if (status.ok()) status = restore->ReadMetas(deadline);
  if (status.ok()) status = restore->Check(request);
  if (!status.ok()) return status;
  restore->CutPieces(request);
  store.Count(&StoreCounters::restores);
  return restore;
}

const CacheLayout& Restore::layout() const { return manifest().layout; }

absl::Status Restore::OpenFiles(const RestoreRequest& request,
                                Deadline deadline) {
  {
    const std::lock_guard lock(store_.mutex_);
    const CatalogManifest* found =
        store_.catalog_.FindManifest(request.manifest);
    if (found == nullptr) return absl::NotFoundError("it is evicted");
    const ManifestRow& row = found->row;
    if (row.fingerprint != request.fingerprint) {
      return absl::FailedPreconditionError("it is of another fingerprint");
    }
    opened_.push_back({row.kind, row.file_key, found->generation,
                       row.meta_bytes, row.file_bytes, nullptr});
    for (std::size_t i = 0;
         i < row.chunks.size() && i * row.grid_tokens < request.position; ++i) {
      const CatalogChunk& chunk = *store_.catalog_.FindChunk(row.chunks[i]);
      opened_.push_back({FileKind::kChunk, chunk.row.file_key, chunk.generation,
                         chunk.row.meta_bytes, chunk.row.file_bytes, nullptr});
    }
  }
  for (std::size_t i = 0; i < opened_.size(); ++i) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError("opening its files took too long");
    }
    auto file = store_.parts_.fs.Open(
        store_.Path(opened_[i].kind, opened_[i].file_key), OpenMode::kRead);
    if (!file.ok()) return Failed(i, file.status());
    opened_[i].file = *std::move(file);
    const std::lock_guard lock(store_.mutex_);
    store_.open_files_.Opened(opened_[i].file_key, opened_[i].file);
  }
  return absl::OkStatus();
}

// What a failure on file `i` means for the store.
absl::Status Restore::Failed(std::size_t i, absl::Status status) {
  // Shorter than its row says.
  if (absl::IsOutOfRange(status)) {
    status = absl::DataLossError(std::string(status.message()));
  }
  // Not found: evicted since we looked, or removed behind our back.
  if (absl::IsDataLoss(status) || absl::IsNotFound(status)) {
    store_.ReportBad(opened_[i].kind, opened_[i].file_key,
                     opened_[i].generation, absl::IsDataLoss(status));
  } else {
    store_.Count(&StoreCounters::restore_errors);
  }
  return status;
}

absl::Status Restore::ReadMetas(Deadline deadline) {
  std::vector<AlignedBuffer> buffers;
  std::vector<IoRequest> requests;
  for (const Opened& opened : opened_) {
    buffers.emplace_back(opened.meta_bytes);
    requests.push_back(IoRequest::Read(opened.file, 0, buffers.back().span()));
  }
  const auto memory =
      std::make_shared<std::vector<AlignedBuffer>>(std::move(buffers));
  const auto batch = store_.parts_.pool.Submit(std::move(requests), memory);
  if (!batch.ok()) {
    store_.Count(&StoreCounters::restore_errors);
    return batch.status();
  }
  for (std::size_t i = 0; i < opened_.size(); ++i) {
    if (auto s = (*batch)->Wait(i, deadline); !s.ok()) return Failed(i, s);
    auto file = DecodeCacheFile(opened_[i].file, (*memory)[i].span(),
                                opened_[i].file_bytes);
    if (!file.ok()) return Failed(i, file.status());
    if (file->meta->file_key != opened_[i].file_key ||
        file->meta->kind != opened_[i].kind) {
      return Failed(i, absl::DataLossError(opened_[i].file->path() +
                                           ": its key is another file's"));
    }
    files_.push_back(*std::move(file));
  }
  return absl::OkStatus();
}

absl::Status Restore::Check(const RestoreRequest& request) {
  const FileMeta& meta = manifest();
  const auto mismatch = [&](const std::string& what) {
    store_.Count(&StoreCounters::restore_mismatches);
    return absl::FailedPreconditionError(what);
  };
  if (meta.fingerprint != request.fingerprint) {
    return mismatch("it is of another fingerprint");
  }
  const auto state = std::find_if(
      meta.states.begin(), meta.states.end(),
      [&](const StateMeta& s) { return s.position == request.position; });
  if (state == meta.states.end() || request.key_ids.size() < request.position) {
    return mismatch(fmt::format("it has no state at {}", request.position));
  }
  state_ = static_cast<std::size_t>(state - meta.states.begin());
  PrefixKey parent = meta.parent_key;
  for (std::size_t i = 1; i < files_.size(); ++i) {
    if (auto s = CheckChunk(request, i, parent); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Restore::CheckChunk(const RestoreRequest& request, std::size_t i,
                                 PrefixKey& parent) {
  const FileMeta& meta = manifest();
  const FileMeta& chunk = *files_[i].meta;
  const std::uint64_t first = (i - 1) * meta.layout.grid_tokens;
  // The chain of keys and sizes is the files' own business: a break in it is
  // damage. The views were compared through the fingerprint.
  if (chunk.parent_key != parent || chunk.first_position != first ||
      chunk.fingerprint != meta.fingerprint ||
      chunk.end_position != meta.chunks[i - 1].end_position ||
      chunk.layout.BlockBytes() != meta.layout.BlockBytes()) {
    return Failed(i, absl::DataLossError(files_[i].file->path() +
                                         ": it is no part of its manifest"));
  }
  parent = chunk.prefix_key;
  const std::uint64_t rows =
      std::min(chunk.end_position, request.position) - first;
  for (std::uint64_t row = 0; row < rows; ++row) {
    if (chunk.key_ids[row] == request.key_ids[first + row]) continue;
    store_.Count(&StoreCounters::restore_mismatches);
    return absl::FailedPreconditionError(
        fmt::format("key id {} is not the prompt's", first + row));
  }
  return absl::OkStatus();
}

void Restore::CutPieces(const RestoreRequest& request) {
  // Pieces of the payload that hold the bytes from `begin` to `end`.
  const auto cut = [&](RestorePiece piece, std::uint64_t begin,
                       std::uint64_t end, std::uint64_t payload) {
    // From sum to sum.
    const std::uint64_t first = begin / format::kCrcPiece * format::kCrcPiece;
    const std::uint64_t last =
        std::min(payload, (end + format::kCrcPiece - 1) / format::kCrcPiece *
                              format::kCrcPiece);
    for (std::uint64_t at = first; at < last; at += kIoBytes) {
      piece.payload_offset = at;
      piece.bytes = std::min(kIoBytes, last - at);
      piece.skip = at < begin ? begin - at : 0;
      piece.use = std::min(at + piece.bytes, end) - (at + piece.skip);
      piece.target_offset = at + piece.skip - begin;
      bytes_ += piece.bytes;
      pieces_.push_back(piece);
    }
  };
  for (std::size_t i = 1; i < files_.size(); ++i) {
    const FileMeta& chunk = *files_[i].meta;
    const std::uint64_t rows =
        std::min(chunk.end_position, request.position) - chunk.first_position;
    const std::uint64_t blocks = (rows + kBlockTokens - 1) / kBlockTokens;
    RestorePiece piece;
    piece.file = static_cast<std::uint32_t>(i);
    piece.chunk_position = chunk.first_position;
    cut(piece, 0, blocks * chunk.layout.BlockBytes(), chunk.payload_bytes);
  }
  RestorePiece piece;
  piece.what = RestorePiece::What::kState;
  const std::uint64_t offset = state().payload_offset;
  cut(piece, offset, offset + StateBytes(layout()), manifest().payload_bytes);
  reads_.resize(pieces_.size());
}

absl::Status Restore::StartRead(std::size_t piece, std::span<std::byte> memory,
                                std::shared_ptr<const void> keep_alive) {
  const RestorePiece& p = pieces_[piece];
  if (memory.size() < p.bytes) {
    return absl::InvalidArgumentError(
        fmt::format("{} bytes for a piece of {}", memory.size(), p.bytes));
  }
  const CacheFile& file = files_[p.file];
  memory = memory.first(p.bytes);
  auto batch = store_.parts_.pool.Submit(
      {IoRequest::Read(file.file, file.meta->meta_bytes + p.payload_offset,
                       memory)},
      std::move(keep_alive));
  if (!batch.ok()) return batch.status();
  reads_[piece] = {*std::move(batch), memory};
  return absl::OkStatus();
}

absl::Status Restore::FinishRead(std::size_t piece, Deadline deadline) {
  Read& read = reads_[piece];
  if (read.batch == nullptr) {
    return absl::FailedPreconditionError("the read was not started");
  }
  const RestorePiece& p = pieces_[piece];
  if (auto s = read.batch->WaitAll(deadline); !s.ok()) {
    return Failed(p.file, s);
  }
  if (auto s = CheckPieces(files_[p.file], p.payload_offset, read.memory);
      !s.ok()) {
    return Failed(p.file, s);
  }
  store_.Count(&StoreCounters::bytes_read, p.bytes);
  read.batch.reset();
  return absl::OkStatus();
}

}  // namespace holdfast::cachesvc
