// What operators see and do.
#include <algorithm>
#include <memory>
#include <utility>

#include "cachesvc/format/names.h"
#include "cachesvc/store/chunk_store.h"
#include "cachesvc/store/settings.h"
#include "cachesvc/store/sweep.h"

namespace holdfast::cachesvc {
namespace {

// Rows deleted at a time when the index is rebuilt.
constexpr std::size_t kBatchRows = 10000;

absl::Status DeleteAllRows(Index& index, Table table) {
  std::vector<std::string> keys;
  auto status = index.Scan(table, [&](std::string_view key, std::string_view) {
    keys.emplace_back(key);
    return true;
  });
  for (std::size_t at = 0; status.ok() && at < keys.size(); at += kBatchRows) {
    IndexBatch batch;
    for (std::size_t i = at; i < std::min(keys.size(), at + kBatchRows); ++i) {
      batch.Delete(table, keys[i]);
    }
    status = index.Write(batch, Durability::kSynced);
  }
  return status;
}

}  // namespace

// mutex_ is held.
ManifestInfo ChunkStore::Describe(const CatalogManifest& manifest) const {
  const ManifestRow& row = manifest.row;
  const std::uint64_t now = service_clock_->Seconds();
  ManifestInfo info;
  info.kind = row.kind;
  info.file_key = row.file_key;
  info.fingerprint = row.fingerprint;
  info.end_position = row.end_position;
  info.taint = row.taint;
  info.file_bytes = row.file_bytes;
  for (const FileKey& key : row.chunks) {
    info.chunk_bytes += catalog_.FindChunk(key)->row.file_bytes;
  }
  info.chunks = static_cast<std::uint32_t>(row.chunks.size());
  info.states = static_cast<std::uint32_t>(row.states.size());
  info.hits = manifest.hits;
  info.age_s = now > row.created_s ? now - row.created_s : 0;
  info.unused_s = now > manifest.last_used_s ? now - manifest.last_used_s : 0;
  info.pinned = manifest.pinned;
  info.foreign = row.fingerprint != attached_;
  info.session_key = row.session_key;
  return info;
}

std::vector<ManifestInfo> ChunkStore::ListManifests() const {
  std::vector<ManifestInfo> list;
  const std::lock_guard lock(mutex_);
  catalog_.ForEachManifest([&](const CatalogManifest& manifest) {
    list.push_back(Describe(manifest));
  });
  return list;
}

std::vector<ChunkInfo> ChunkStore::ListChunks() const {
  std::vector<ChunkInfo> list;
  const std::lock_guard lock(mutex_);
  catalog_.ForEachChunk([&](const CatalogChunk& chunk) {
    list.push_back(
        {chunk.row.file_key, chunk.row.fingerprint, chunk.row.first_position,
         chunk.row.end_position, chunk.row.provenance, chunk.row.file_bytes,
         chunk.anchor_users,
         static_cast<std::uint32_t>(chunk.users.size()) - chunk.anchor_users});
  });
  return list;
}

std::optional<ManifestInfo> ChunkStore::ShowManifest(const FileKey& key) const {
  const std::lock_guard lock(mutex_);
  const CatalogManifest* manifest = catalog_.FindManifest(key);
  if (manifest == nullptr) return std::nullopt;
  return Describe(*manifest);
}

absl::Status ChunkStore::SetPinned(const FileKey& manifest, bool pinned) {
  const auto pass = mutation_gate_.Enter(StepDeadline());
  if (!pass.ok()) return pass.status();
  {
    const std::lock_guard lock(mutex_);
    if (catalog_.FindManifest(manifest) == nullptr) {
      return absl::NotFoundError("no anchor or session " + ToHex(manifest));
    }
  }
  IndexBatch batch;
  if (pinned) {
    PutPin(batch, manifest);
  } else {
    DeletePin(batch, manifest);
  }
  if (auto s = WriteSettings(batch); !s.ok()) return s;
  const std::lock_guard lock(mutex_);
  catalog_.SetPinned(manifest, pinned);
  return absl::OkStatus();
}

absl::Status ChunkStore::Verify(const FileKey& manifest, bool drop_bad,
                                Deadline deadline) {
  struct Check {
    FileKind kind;
    FileKey file_key;
    std::uint64_t generation;
    std::uint64_t meta_bytes;
    std::uint64_t file_bytes;
  };
  std::vector<Check> checks;
  {
    const std::lock_guard lock(mutex_);
    const CatalogManifest* found = catalog_.FindManifest(manifest);
    if (found == nullptr) {
      return absl::NotFoundError("no anchor or session " + ToHex(manifest));
    }
    const ManifestRow& row = found->row;
    checks.push_back({row.kind, row.file_key, found->generation, row.meta_bytes,
                      row.file_bytes});
    for (const FileKey& key : row.chunks) {
      const CatalogChunk& chunk = *catalog_.FindChunk(key);
      checks.push_back({FileKind::kChunk, key, chunk.generation,
                        chunk.row.meta_bytes, chunk.row.file_bytes});
    }
  }
  for (const Check& check : checks) {
    const auto file =
        OpenCacheFile(parts_.fs, parts_.pool, Path(check.kind, check.file_key),
                      check.meta_bytes, check.file_bytes, deadline);
    absl::Status status = file.status();
    if (status.ok() && file->meta->file_key != check.file_key) {
      status = absl::DataLossError(file->file->path() +
                                   ": its key is another file's");
    }
    if (status.ok()) status = VerifyPayload(parts_.pool, *file, deadline);
    if (status.ok()) continue;
    if (drop_bad && (absl::IsDataLoss(status) || absl::IsNotFound(status))) {
      ReportBad(check.kind, check.file_key, check.generation,
                absl::IsDataLoss(status));
    }
    return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<SweepReport> ChunkStore::RebuildIndex() {
  const auto writers = write_gate_.Enter(StepDeadline());
  if (!writers.ok()) return writers.status();
  const auto pass = mutation_gate_.Enter(StepDeadline());
  if (!pass.ok()) return pass.status();
  if (auto s = FlushUse(); !s.ok()) return s;
  if (auto s = FinishDeletions(); !s.ok()) return s;
  for (const Table table :
       {Table::kChunks, Table::kAnchors, Table::kSessions}) {
    if (auto s = DeleteAllRows(parts_.index, table); !s.ok()) return s;
  }
  if (auto s = BeginSweep(); !s.ok()) return s;
  if (auto s = sweep_->Run(std::chrono::steady_clock::time_point::max());
      !s.ok()) {
    return s;
  }
  const SweepReport report = sweep_->report();
  if (sweep_->done()) sweep_.reset();
  return report;
}

absl::Status ChunkStore::BeginSweep() {
  {
    const std::lock_guard lock(mutex_);
    catalog_.Clear();
    unadopted_bytes_ = 0;
    sweep_again_ = true;
  }
  sweep_.reset();
  // One that did not begin knows of no file: it must never settle.
  auto sweep = std::make_unique<Sweep>(*this);
  if (auto s = sweep->Begin(); !s.ok()) return s;
  sweep_ = std::move(sweep);
  const std::lock_guard lock(mutex_);
  sweep_again_ = false;
  return absl::OkStatus();
}

}  // namespace holdfast::cachesvc
