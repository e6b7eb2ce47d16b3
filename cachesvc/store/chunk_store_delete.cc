// Everything that makes files go.
#include <algorithm>
#include <set>
#include <utility>

#include "cachesvc/format/names.h"
#include "cachesvc/store/chunk_store.h"
#include "cachesvc/store/settings.h"
#include "cachesvc/store/sweep.h"

namespace holdfast::cachesvc {

absl::Status ChunkStore::DeleteFiles(const std::vector<DroppedFile>& files) {
  if (files.empty()) return absl::OkStatus();
  {
    const std::lock_guard lock(mutex_);
    for (const DroppedFile& file : files) {
      condemned_[file.file_key] = file;
      fresh_use_.erase(file.file_key);
    }
  }
  return FinishDeletions();
}

absl::Status ChunkStore::FinishDeletions() {
  std::vector<DroppedFile> files;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, file] : condemned_) files.push_back(file);
  }
  if (files.empty()) return absl::OkStatus();
  IndexBatch batch;
  for (const DroppedFile& file : files) {
    batch.Put(Table::kTombstones, TombstoneKey(file.kind, file.file_key), "");
    batch.Delete(TableOf(file.kind), RowKey(file.fingerprint, file.file_key));
    if (file.kind == FileKind::kChunk) continue;
    batch.Delete(Table::kHits, HitKey(file.file_key));
    DeletePin(batch, file.file_key);
  }
  // Crash before: all is as it was. After: the sweep finishes what is left.
  if (auto s = parts_.index.Write(batch, Durability::kSynced); !s.ok()) {
    return s;
  }
  UnlinkCondemned(files);
  if (files.empty()) return absl::OkStatus();
  IndexBatch done;
  for (const DroppedFile& file : files) {
    done.Delete(Table::kTombstones, TombstoneKey(file.kind, file.file_key));
  }
  // A tombstone that stays finds no file at the next start, and goes then.
  (void)parts_.index.Write(done, Durability::kLazy);
  const std::lock_guard lock(mutex_);
  for (const DroppedFile& file : files) {
    open_files_.Deleted(file.file_key, file.bytes);
    condemned_.erase(file.file_key);
  }
  return absl::OkStatus();
}

// Leaves in `files` those whose names are gone for good.
void ChunkStore::UnlinkCondemned(std::vector<DroppedFile>& files) {
  // Manifests first: what a crash leaves is then a chunk too many.
  std::stable_sort(files.begin(), files.end(),
                   [](const DroppedFile& a, const DroppedFile& b) {
                     return a.kind > b.kind;
                   });
  std::set<FileKind> failed, touched;
  std::erase_if(files, [&](const DroppedFile& file) {
    const auto s = parts_.fs.Unlink(Path(file.kind, file.file_key));
    if (!s.ok() && !absl::IsNotFound(s)) return true;
    touched.insert(file.kind);
    return false;
  });
  for (const FileKind kind : touched) {
    if (!parts_.fs.SyncDirectory(Folder(kind)).ok()) failed.insert(kind);
  }
  std::erase_if(files, [&](const DroppedFile& file) {
    return failed.contains(file.kind);
  });
}

absl::Status ChunkStore::Drop(std::span<const FileKey> manifests,
                              std::uint64_t StoreCounters::*reason) {
  std::vector<DroppedFile> files;
  {
    const std::lock_guard lock(mutex_);
    for (const FileKey& key : manifests) {
      auto dropped = catalog_.RemoveManifest(key);
      if (!dropped.empty()) ++(counters_.*reason);
      files.insert(files.end(), dropped.begin(), dropped.end());
    }
  }
  return DeleteFiles(files);
}

absl::Status ChunkStore::EvictTo(FileKind kind, std::uint64_t target) {
  while (true) {
    std::optional<FileKey> victim;
    {
      const std::lock_guard lock(mutex_);
      std::uint64_t bytes = catalog_.bytes(kind);
      if (kind == FileKind::kAnchor) bytes += OutsideCatalog();
      if (bytes <= target) return absl::OkStatus();
      // One that is being read gives nothing back, and is not useless.
      victim = catalog_.Victim(kind, attached_, [&](const FileKey& key) {
        return open_files_.IsOpen(key);
      });
    }
    if (!victim) {
      return absl::ResourceExhaustedError(
          "nothing is left that may be evicted");
    }
    const std::size_t before = condemned_count();
    if (auto s =
            Drop(std::span(&*victim, 1),
                 kind == FileKind::kAnchor ? &StoreCounters::evicted_anchors
                                           : &StoreCounters::evicted_sessions);
        !s.ok()) {
      return s;
    }
    // A disk that unlinks nothing gives nothing back: evicting more would only
    // lose more.
    if (condemned_count() > before) {
      return absl::UnavailableError("files cannot be deleted");
    }
  }
}

std::size_t ChunkStore::condemned_count() const {
  const std::lock_guard lock(mutex_);
  return condemned_.size();
}

absl::Status ChunkStore::TrimToBudgets() {
  if (sweep_ != nullptr && !sweep_->done()) return absl::OkStatus();
  MeasureIndex();
  const StoreLimits limits = this->limits();
  const absl::Status disk =
      EvictTo(FileKind::kAnchor, limits.disk_budget_bytes);
  // Chunks of an anchor that went may be charged to the spill now.
  const absl::Status spill =
      EvictTo(FileKind::kSession, limits.spill_budget_bytes);
  for (const absl::Status& s : {disk, spill}) {
    // All pinned: over budget by the operator's will.
    if (!s.ok() && !absl::IsResourceExhausted(s)) return s;
  }
  return absl::OkStatus();
}

std::vector<FileKey> ChunkStore::Chosen(
    const std::function<bool(const CatalogManifest&)>& chosen) const {
  std::vector<FileKey> keys;
  const std::lock_guard lock(mutex_);
  catalog_.ForEachManifest([&](const CatalogManifest& manifest) {
    if (chosen(manifest)) keys.push_back(manifest.row.file_key);
  });
  std::sort(keys.begin(), keys.end());
  return keys;
}

absl::StatusOr<std::uint64_t> ChunkStore::DropChosen(
    const std::function<bool(const CatalogManifest&)>& chosen,
    std::uint64_t StoreCounters::*reason) {
  const std::vector<FileKey> keys = Chosen(chosen);
  if (auto s = Drop(keys, reason); !s.ok()) return s;
  return keys.size();
}

void ChunkStore::ReportBad(FileKind kind, const FileKey& key,
                           std::uint64_t generation, bool corrupt) {
  {
    // Invisible at once; the rest may take its time.
    const std::lock_guard lock(mutex_);
    if (catalog_.Generation(kind, key) != generation) return;
    ++(corrupt ? counters_.corrupt_files : counters_.missing_files);
    const auto dropped = kind == FileKind::kChunk
                             ? catalog_.RemoveChunk(key)
                             : catalog_.RemoveManifest(key);
    for (const DroppedFile& file : dropped) {
      counters_.manifests_lost_to_damage += file.kind != FileKind::kChunk;
      condemned_[file.file_key] = file;
      fresh_use_.erase(file.file_key);
    }
  }
  // A request waits for the answer: whoever is in the gate, or Maintain(), does
  // the rest.
  const auto pass = mutation_gate_.Enter(std::chrono::steady_clock::now());
  if (pass.ok()) (void)FinishDeletions();
}

absl::StatusOr<std::uint64_t> ChunkStore::Evict(
    std::span<const FileKey> manifests) {
  const auto pass = mutation_gate_.Enter(StepDeadline());
  if (!pass.ok()) return pass.status();
  const std::set<FileKey> wanted(manifests.begin(), manifests.end());
  return DropChosen(
      [&](const CatalogManifest& manifest) {
        return wanted.contains(manifest.row.file_key);
      },
      &StoreCounters::cleared);
}

absl::StatusOr<std::uint64_t> ChunkStore::EvictUnusedFor(
    FileKind kind, std::uint64_t seconds) {
  const auto pass = mutation_gate_.Enter(StepDeadline());
  if (!pass.ok()) return pass.status();
  const std::uint64_t now = service_clock_->Seconds();
  return DropChosen(
      [&](const CatalogManifest& manifest) {
        return manifest.row.kind == kind && !manifest.pinned &&
               now >= manifest.last_used_s + seconds;
      },
      &StoreCounters::cleared);
}

absl::StatusOr<std::uint64_t> ChunkStore::EvictBytes(FileKind kind,
                                                     std::uint64_t bytes) {
  const auto pass = mutation_gate_.Enter(StepDeadline());
  if (!pass.ok()) return pass.status();
  if (sweep_ != nullptr || SweepAgain()) {
    return absl::FailedPreconditionError(
        "what each entry takes is not known: the files are being looked at");
  }
  std::uint64_t target = 0;
  std::size_t before = 0;
  {
    const std::lock_guard lock(mutex_);
    before = catalog_.manifests();
    const std::uint64_t have = catalog_.bytes(kind);
    target = have > bytes ? have - bytes : 0;
  }
  if (auto s = EvictTo(kind, target);
      !s.ok() && !absl::IsResourceExhausted(s)) {
    return s;
  }
  const std::lock_guard lock(mutex_);
  return before - catalog_.manifests();
}

absl::StatusOr<std::uint64_t> ChunkStore::Clear(FileKind kind,
                                                bool foreign_only) {
  const auto pass = mutation_gate_.Enter(StepDeadline());
  if (!pass.ok()) return pass.status();
  std::optional<Sha256Digest> attached;
  {
    const std::lock_guard lock(mutex_);
    attached = attached_;
  }
  const auto goes = [&](const ManifestRow& row) {
    return row.kind == kind && (!foreign_only || row.fingerprint != attached);
  };
  if (SweepAgain()) {
    return absl::FailedPreconditionError(
        "which files there are is not known: the folders could not be listed");
  }
  // What the start has not come to must not come back either.
  std::vector<DroppedFile> waiting;
  if (sweep_ != nullptr) {
    if (foreign_only) {
      const auto read = sweep_->ReadManifests(kind, StepDeadline());
      if (!read.ok()) return read;
    }
    waiting = sweep_->Take(kind, /*unread=*/!foreign_only, goes);
    Count(&StoreCounters::cleared, waiting.size());
  }
  if (auto s = DeleteFiles(waiting); !s.ok()) return s;
  const auto gone = DropChosen(
      [&](const CatalogManifest& manifest) { return goes(manifest.row); },
      &StoreCounters::cleared);
  if (!gone.ok()) return gone.status();
  return *gone + waiting.size();
}

}  // namespace holdfast::cachesvc
