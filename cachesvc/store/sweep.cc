#include "cachesvc/store/sweep.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>

#include "cachesvc/format/names.h"
#include "cachesvc/store/settings.h"
#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

// Rows of adopted files go into the index this many at a time.
constexpr std::size_t kBatchRows = 1000;
// A file that cannot be read so often is of no use. A minute lies between two.
constexpr int kMostTries = 3;

}  // namespace

absl::Status Sweep::Begin() {
  const auto start = store_.parts_.clock.Now();
  {
    const std::lock_guard lock(store_.mutex_);
    store_.catalog_.KeepUnreferenced();
  }
  for (const auto step :
       {&Sweep::RemoveTemporaries, &Sweep::ListFolders, &Sweep::ReadUse,
        &Sweep::FinishTombstones, &Sweep::ReadChunkRows}) {
    if (auto s = (this->*step)(); !s.ok()) return s;
  }
  for (const Table table : {Table::kAnchors, Table::kSessions}) {
    if (auto s = ReadManifestRows(table); !s.ok()) return s;
  }
  {
    const std::lock_guard lock(store_.mutex_);
    for (const auto& [id, bytes] : files_) store_.unadopted_bytes_ += bytes;
    for (const Waiting& waiting : waiting_) {
      store_.unadopted_bytes_ += waiting.row.file_bytes;
    }
    store_.unknown_bytes_ = report_.unknown_bytes;
    store_.counters_.corrupt_rows += report_.corrupt_rows;
  }
  report_.ms += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(
          store_.parts_.clock.Now() - start)
          .count());
  return WriteRows();
}

absl::Status Sweep::RemoveTemporaries() {
  FileSystem& fs = store_.parts_.fs;
  const std::string folder = store_.options_.folder + "/" + kTmpFolder;
  const auto entries = fs.List(folder);
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries) {
    const std::string path = folder + "/" + entry.name;
    const auto s = fs.Unlink(path);
    report_.temporaries += s.ok();
    const std::lock_guard lock(store_.mutex_);
    if (s.ok() || absl::IsNotFound(s)) {
      store_.litter_.erase(path);
    } else {
      store_.litter_[path] = entry.bytes;
    }
  }
  return absl::OkStatus();
}

absl::Status Sweep::ListFolders() {
  for (const FileKind kind : kAllKinds) {
    const auto entries = store_.parts_.fs.List(store_.Folder(kind));
    if (!entries.ok()) return entries.status();
    for (const DirectoryEntry& entry : *entries) {
      if (const auto key = ParseFileName(kind, entry.name)) {
        files_[{kind, *key}] = entry.bytes;
      } else {
        ++report_.unknown_names;
        report_.unknown_bytes += entry.bytes;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Sweep::ReadUse() {
  auto pins = LoadPins(store_.parts_.index);
  if (!pins.ok()) return pins.status();
  pins_ = *std::move(pins);
  auto uses = LoadUses(store_.parts_.index, [this](std::string_view key) {
    BadRow(Table::kHits, key);
  });
  if (!uses.ok()) return uses.status();
  use_ = *std::move(uses);
  return absl::OkStatus();
}

absl::Status Sweep::FinishTombstones() {
  std::vector<DroppedFile> doomed;
  auto status = store_.parts_.index.Scan(
      Table::kTombstones, [&](std::string_view key, std::string_view) {
        const auto tombstone = ParseTombstoneKey(key);
        const auto it =
            tombstone ? files_.find({tombstone->kind, tombstone->file_key})
                      : files_.end();
        if (it == files_.end()) {
          rows_.Delete(Table::kTombstones, std::string(key));
          return true;
        }
        doomed.push_back(
            {tombstone->kind, tombstone->file_key, {}, it->second});
        files_.erase(it);
        ++report_.tombstones;
        return true;
      });
  if (!status.ok()) return status;
  return store_.DeleteFiles(doomed);
}

void Sweep::BadRow(Table table, std::string_view key) {
  ++report_.corrupt_rows;
  rows_.Delete(table, std::string(key));
}

// Whether the row's file is there as the row says; such a file is no orphan. A
// file of another size is looked at like one without a row.
bool Sweep::FileOf(FileKind kind, const FileKey& key, std::uint64_t bytes) {
  const auto it = files_.find({kind, key});
  if (it == files_.end() || it->second != bytes) {
    ++report_.dangling_rows;
    return false;
  }
  files_.erase(it);
  ++report_.rows;
  return true;
}

absl::Status Sweep::ReadChunkRows() {
  return store_.parts_.index.Scan(
      Table::kChunks, [&](std::string_view key, std::string_view value) {
        const auto row = DecodeChunkRow(key, value);
        if (!row) {
          BadRow(Table::kChunks, key);
        } else if (!FileOf(FileKind::kChunk, row->file_key, row->file_bytes)) {
          rows_.Delete(Table::kChunks, std::string(key));
        } else {
          const std::lock_guard lock(store_.mutex_);
          store_.catalog_.AddChunk(*row);
        }
        return true;
      });
}

absl::Status Sweep::ReadManifestRows(Table table) {
  return store_.parts_.index.Scan(
      table, [&](std::string_view key, std::string_view value) {
        const auto row = DecodeManifestRow(key, value);
        if (!row || TableOf(row->kind) != table) {
          BadRow(table, key);
        } else if (!FileOf(row->kind, row->file_key, row->file_bytes)) {
          rows_.Delete(table, std::string(key));
        } else {
          if (!AddManifest(*row)) waiting_.push_back({*row, false});
        }
        return true;
      });
}

// Whether it is in the catalog now.
bool Sweep::AddManifest(const ManifestRow& row) {
  const std::lock_guard lock(store_.mutex_);
  const auto use = use_.find(row.file_key);
  const HitRow hits = use == use_.end() ? HitRow() : use->second;
  store_.catalog_.AddManifest(row, hits.hits, hits.last_used_s,
                              pins_.contains(row.file_key));
  return store_.catalog_.FindManifest(row.file_key) != nullptr;
}

void Sweep::AdoptNext() {
  const auto last = std::prev(files_.end());
  const auto [id, bytes] = *last;
  files_.erase(last);
  {
    const std::lock_guard lock(store_.mutex_);
    store_.unadopted_bytes_ -= bytes;
  }
  Adopt(id.first, id.second, bytes);
}

void Sweep::Adopt(FileKind kind, const FileKey& file_key, std::uint64_t bytes) {
  const auto file = OpenCacheFile(store_.parts_.fs, store_.parts_.pool,
                                  store_.Path(kind, file_key), 0, bytes,
                                  store_.StepDeadline());
  if (absl::IsNotFound(file.status())) return;
  if (!file.ok() && !absl::IsDataLoss(file.status()) && !last_try_) {
    unread_[{kind, file_key}] = bytes;
    const std::lock_guard lock(store_.mutex_);
    store_.unadopted_bytes_ += bytes;
    return;
  }
  if (!file.ok() || file->meta->file_key != file_key ||
      file->meta->kind != kind) {
    ++report_.corrupt_files;
    store_.Count(&StoreCounters::corrupt_files);
    bad_.push_back({kind, file_key, {}, bytes});
    const std::lock_guard lock(store_.mutex_);
    store_.unadopted_bytes_ += bytes;
    return;
  }
  ++report_.adopted;
  const FileMeta& meta = *file->meta;
  if (kind != FileKind::kChunk) {
    waiting_.push_back(
        {ManifestRowOf(meta, store_.service_clock_->Seconds()), true});
    const std::lock_guard lock(store_.mutex_);
    store_.unadopted_bytes_ += bytes;
    return;
  }
  const ChunkRow row = ChunkRowOf(meta);
  const std::string key = RowKey(row.fingerprint, row.file_key);
  rows_.Put(Table::kChunks, key, EncodeRow(key, row));
  const std::lock_guard lock(store_.mutex_);
  store_.catalog_.AddChunk(row);
}

absl::Status Sweep::WriteRows() {
  if (rows_.empty()) return absl::OkStatus();
  auto status = store_.parts_.index.Write(rows_, Durability::kSynced);
  if (status.ok()) rows_ = IndexBatch();
  return status;
}

absl::Status Sweep::Run(std::chrono::steady_clock::time_point limit) {
  const auto start = store_.parts_.clock.Now();
  last_try_ = tries_ >= kMostTries;
  files_.merge(unread_);
  while (!files_.empty() && store_.parts_.clock.Now() < limit) {
    AdoptNext();
    if (rows_.ops().size() >= kBatchRows) {
      if (auto s = WriteRows(); !s.ok()) return s;
    }
  }
  absl::Status status = WriteRows();
  report_.left_for_later = files_.size() + unread_.size();
  if (status.ok() && files_.empty() && !unread_.empty()) {
    ++tries_;
  } else if (status.ok() && files_.empty()) {
    status = Settle();
    done_ = status.ok();
    if (done_) status = store_.TrimToBudgets();
  }
  report_.ms += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(
          store_.parts_.clock.Now() - start)
          .count());
  return status;
}

absl::Status Sweep::ReadManifests(FileKind kind, Deadline deadline) {
  last_try_ = false;
  files_.merge(unread_);
  // None of the kind lies behind those before it.
  while (!files_.empty() && files_.rbegin()->first.first >= kind) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError(fmt::format(
          "{} files without a row are still to be read", files_.size()));
    }
    AdoptNext();
  }
  if (Unread(kind)) {
    return absl::UnavailableError(fmt::format(
        "{} files could not be read; they are tried again", unread_.size()));
  }
  return absl::OkStatus();
}

bool Sweep::Unread(FileKind kind) const {
  return std::ranges::any_of(
      unread_, [&](const auto& file) { return file.first.first == kind; });
}

std::uint64_t Sweep::NewestSequence(const Sha256Digest& session_id) const {
  std::uint64_t newest = 0;
  for (const Waiting& waiting : waiting_) {
    const ManifestRow& row = waiting.row;
    if (row.kind == FileKind::kSession && row.session_id == session_id) {
      newest = std::max(newest, row.sequence);
    }
  }
  return newest;
}

bool Sweep::HasPinned(const Sha256Digest& session_id) const {
  return std::ranges::any_of(waiting_, [&](const Waiting& waiting) {
    const ManifestRow& row = waiting.row;
    return row.kind == FileKind::kSession && row.session_id == session_id &&
           pins_.contains(row.file_key);
  });
}

void Sweep::Replaced(FileKind kind, const FileKey& file_key) {
  std::uint64_t bytes = 0;
  for (auto* files : {&files_, &unread_}) {
    const auto it = files->find({kind, file_key});
    if (it == files->end()) continue;
    bytes += it->second;
    files->erase(it);
  }
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    const ManifestRow& row = waiting.row;
    if (row.kind != kind || row.file_key != file_key) return false;
    bytes += row.file_bytes;
    return true;
  });
  std::erase_if(bad_, [&](const DroppedFile& file) {
    if (file.kind != kind || file.file_key != file_key) return false;
    bytes += file.bytes;
    return true;
  });
  const std::lock_guard lock(store_.mutex_);
  store_.unadopted_bytes_ -= bytes;
}

std::vector<DroppedFile> Sweep::Take(
    FileKind kind, bool unread,
    const std::function<bool(const ManifestRow&)>& chosen) {
  std::vector<DroppedFile> taken;
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    const ManifestRow& row = waiting.row;
    if (row.kind != kind || !chosen(row)) return false;
    taken.push_back({kind, row.file_key, row.fingerprint, row.file_bytes});
    return true;
  });
  for (auto* files : {&files_, &unread_}) {
    std::erase_if(*files, [&](const auto& file) {
      if (!unread || file.first.first != kind) return false;
      taken.push_back({kind, file.first.second, {}, file.second});
      return true;
    });
  }
  const std::lock_guard lock(store_.mutex_);
  for (const DroppedFile& file : taken) store_.unadopted_bytes_ -= file.bytes;
  return taken;
}

// Everything that could be adopted is: what is still incomplete stays so.
absl::Status Sweep::Settle() {
  std::vector<DroppedFile> dropped = std::move(bad_);
  bad_.clear();
  {
    const std::lock_guard lock(store_.mutex_);
    for (const DroppedFile& file : dropped) {
      store_.unadopted_bytes_ -= file.bytes;
    }
  }
  for (const Waiting& waiting : waiting_) {
    const ManifestRow& row = waiting.row;
    const bool complete = AddManifest(row);
    const std::lock_guard lock(store_.mutex_);
    store_.unadopted_bytes_ -= row.file_bytes;
    if (!complete) {
      ++report_.incomplete_manifests;
      dropped.push_back(
          {row.kind, row.file_key, row.fingerprint, row.file_bytes});
    } else if (waiting.new_row) {
      const std::string key = RowKey(row.fingerprint, row.file_key);
      rows_.Put(TableOf(row.kind), key, EncodeRow(key, row));
    }
  }
  waiting_.clear();
  KeepNewestSessions(dropped);
  {
    const std::lock_guard lock(store_.mutex_);
    const auto chunks = store_.catalog_.RemoveUnreferenced();
    report_.unreferenced_chunks += chunks.size();
    dropped.insert(dropped.end(), chunks.begin(), chunks.end());
  }
  ForgetUses();
  {
    // Charged, and deleted some time, whatever fails below.
    const std::lock_guard lock(store_.mutex_);
    for (const DroppedFile& file : dropped) {
      store_.condemned_[file.file_key] = file;
    }
  }
  if (auto s = WriteRows(); !s.ok()) return s;
  return store_.FinishDeletions();
}

// Uses and pins of files that went without the store: nobody else would.
void Sweep::ForgetUses() {
  const std::lock_guard lock(store_.mutex_);
  for (const auto& [key, use] : use_) {
    if (store_.catalog_.FindManifest(key) != nullptr) continue;
    rows_.Delete(Table::kHits, HitKey(key));
  }
  for (const FileKey& key : pins_) {
    if (store_.catalog_.FindManifest(key) == nullptr) DeletePin(rows_, key);
  }
}

// A crash after a session's new file was durable leaves the older one.
void Sweep::KeepNewestSessions(std::vector<DroppedFile>& dropped) {
  const std::lock_guard lock(store_.mutex_);
  std::vector<FileKey> older;
  store_.catalog_.ForEachManifest([&](const CatalogManifest& manifest) {
    if (manifest.row.kind == FileKind::kSession &&
        store_.catalog_.NewestSession(manifest.row.session_id) !=
            manifest.row.file_key) {
      older.push_back(manifest.row.file_key);
    }
  });
  for (const FileKey& key : older) {
    ++store_.counters_.replaced_sessions;
    const auto files = store_.catalog_.RemoveManifest(key);
    dropped.insert(dropped.end(), files.begin(), files.end());
  }
}

}  // namespace holdfast::cachesvc
