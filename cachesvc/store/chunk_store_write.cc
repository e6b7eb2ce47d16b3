// Writing a manifest with its chunks.
#include <algorithm>
#include <utility>

#include "cachesvc/format/names.h"
#include "cachesvc/store/check_write.h"
#include "cachesvc/store/chunk_store.h"
#include "cachesvc/store/settings.h"
#include "cachesvc/store/staged.h"
#include "cachesvc/store/sweep.h"
#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

// A drive slower than this is given up.
constexpr std::uint64_t kSlowestBytesPerMs = 20'000;

// Of a file not written yet; never too small.
std::uint64_t MetaBytesAtMost(const ManifestWrite& write, std::uint64_t ids,
                              std::uint64_t chunks, std::uint64_t payload) {
  std::uint64_t names = 0;
  for (const View& view : write.layout.views) names += 64 + view.name.size();
  for (const Section& section : write.layout.sections) {
    names += 64 + section.name.size();
  }
  return PagesUp(2 * format::kPadding + names + 8 * ids + 96 * chunks +
                 64 * write.states.size() + 4 * (payload / format::kCrcPiece) +
                 write.session_key.size() + write.record.size());
}

FileMeta CommonMeta(const ManifestWrite& write) {
  FileMeta meta;
  meta.fingerprint = write.fingerprint;
  meta.layout = write.layout;
  return meta;
}

std::uint64_t ChunkPayload(const ManifestWrite& write, std::uint64_t rows) {
  return (rows + kBlockTokens - 1) / kBlockTokens * write.layout.BlockBytes();
}

}  // namespace

absl::StatusOr<WriteResult> ChunkStore::WriteManifest(
    const ManifestWrite& write) {
  if (auto s = CheckWrite(write); !s.ok()) return s;
  Staged staged(write);
  const auto pass = write_gate_.Enter(std::min(write.deadline, StepDeadline()));
  if (!pass.ok()) {
    CountFailure(pass.status());
    return pass.status();
  }
  absl::Status status = FindShared(write, staged);
  if (status.ok() && !staged.result.was_there) {
    status = StageAndPublish(write, staged);
  }
  if (!status.ok()) {
    Discard(staged);
    if (!staged.counted) CountFailure(status);
  }
  std::vector<DroppedFile> loose;
  {
    const std::lock_guard lock(mutex_);
    loose = catalog_.Unpend(staged.pended);
  }
  const auto gate = mutation_gate_.Enter(StepDeadline());
  if (gate.ok()) {
    (void)DeleteFiles(loose);
    // A chunk may have moved from one budget to the other.
    (void)TrimToBudgets();
  } else {
    const std::lock_guard lock(mutex_);
    for (const DroppedFile& file : loose) condemned_[file.file_key] = file;
  }
  if (!status.ok()) return status;
  return staged.result;
}

absl::Status ChunkStore::StageAndPublish(const ManifestWrite& write,
                                         Staged& staged) {
  if (auto s = KnowOlder(write, staged); !s.ok()) return s;
  if (auto s = MakeRoom(write, staged); !s.ok()) return s;
  if (auto s = StageChunks(write, staged); !s.ok()) return s;
  if (auto s = StageManifest(write, staged); !s.ok()) return s;
  return Publish(staged);
}

// The newest of a session's files has the highest number, also among those that
// the start has not come to.
absl::Status ChunkStore::KnowOlder(const ManifestWrite& write, Staged& staged) {
  if (SweepAgain()) {
    return absl::FailedPreconditionError(
        "which files there are is not known: the folders could not be listed");
  }
  if (write.kind != FileKind::kSession) return absl::OkStatus();
  const Deadline deadline = std::min(write.deadline, StepDeadline());
  const auto pass = mutation_gate_.Enter(deadline);
  if (!pass.ok()) return pass.status();
  if (sweep_ == nullptr) return absl::OkStatus();
  if (auto s = sweep_->ReadManifests(FileKind::kSession, deadline); !s.ok()) {
    return s;
  }
  staged.older_sequence = sweep_->NewestSequence(write.session_id);
  return absl::OkStatus();
}

// Names every chunk, and holds those that are there.
absl::Status ChunkStore::FindShared(const ManifestWrite& write,
                                    Staged& staged) {
  for (std::size_t i = 0; i < write.chunks.size(); ++i) {
    Staged::Chunk chunk;
    chunk.first_position = i * staged.grid;
    chunk.end_position = std::min<std::uint64_t>(
        chunk.first_position + staged.grid, write.key_ids.size());
    chunk.prefix_key = staged.keys.KeyAt(chunk.end_position);
    chunk.sums = write.chunks[i].sums;
    if (chunk.sums.empty() &&
        write.chunks[i].provenance == Provenance::kSession) {
      const auto rows = RowsOf(write, i, staged);
      if (!rows.ok()) return rows.status();
      chunk.sums = ViewSums(write.layout, rows->blocks);
    }
    chunk.file_key =
        ChunkFileKey(chunk.prefix_key, write.chunks[i].provenance, chunk.sums);
    staged.chunks.push_back(std::move(chunk));
  }
  const std::lock_guard lock(mutex_);
  if (write.kind == FileKind::kAnchor) {
    staged.result.file_key =
        AnchorFileKey(staged.keys.KeyAt(write.key_ids.size()));
    staged.result.end_position = write.key_ids.size();
    staged.result.was_there =
        catalog_.FindManifest(staged.result.file_key) != nullptr;
    if (staged.result.was_there) return absl::OkStatus();
  }
  for (Staged::Chunk& chunk : staged.chunks) {
    const CatalogChunk* found = catalog_.FindChunk(chunk.file_key);
    if (found == nullptr) continue;
    chunk.shared = true;
    chunk.row = found->row;
    staged.pended.push_back(chunk.file_key);
  }
  catalog_.Pend(staged.pended);
  return absl::OkStatus();
}

absl::StatusOr<FetchedRows> ChunkStore::RowsOf(const ManifestWrite& write,
                                               std::size_t i, Staged& staged) {
  if (write.chunks[i].blocks_elsewhere == 0) {
    return FetchedRows{write.chunks[i].blocks, write.keep_alive};
  }
  auto rows = write.fetch(i);
  if (absl::IsAborted(rows.status())) {
    Count(&StoreCounters::leases_lost);
    staged.counted = true;
  }
  return rows;
}

absl::Status ChunkStore::MayWrite(std::uint64_t bytes, Staged& staged) {
  const auto free = parts_.fs.FreeBytes(options_.folder);
  if (!free.ok()) return free.status();
  const std::lock_guard lock(mutex_);
  not_writing_ = FloorReached(*free, bytes);
  if (not_writing_.empty()) return absl::OkStatus();
  ++counters_.refused_free_space;
  staged.counted = true;
  return absl::ResourceExhaustedError(not_writing_);
}

absl::Status ChunkStore::MakeRoom(const ManifestWrite& write, Staged& staged) {
  const std::uint64_t states = StateBytes(write.layout) * write.states.size();
  std::uint64_t bytes = states + MetaBytesAtMost(write, write.key_ids.size(),
                                                 write.chunks.size(), states);
  for (const Staged::Chunk& chunk : staged.chunks) {
    if (chunk.shared) continue;
    const std::uint64_t rows = chunk.end_position - chunk.first_position;
    const std::uint64_t payload = ChunkPayload(write, rows);
    bytes += payload + MetaBytesAtMost(write, rows, 0, payload);
  }
  if (auto s = MayWrite(bytes, staged); !s.ok()) return s;
  const auto pass = mutation_gate_.Enter(StepDeadline());
  if (!pass.ok()) return pass.status();
  MeasureIndex();
  const absl::Status room = RoomFor(write, bytes, staged);
  if (!room.ok()) {
    Count(&StoreCounters::refused_budget);
    staged.counted = true;
  }
  return room;
}

absl::Status ChunkStore::RoomFor(const ManifestWrite& write,
                                 std::uint64_t bytes, const Staged& staged) {
  const StoreLimits limits = this->limits();
  const bool anchor = write.kind == FileKind::kAnchor;
  if (sweep_ != nullptr) {
    // Who pays for what is not known yet, so nobody is evicted; both budgets
    // together hold.
    const std::lock_guard lock(mutex_);
    const std::uint64_t have =
        catalog_.disk_bytes() + catalog_.spill_bytes() + OutsideCatalog();
    if (have + bytes <= limits.disk_budget_bytes + limits.spill_budget_bytes) {
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(fmt::format(
        "no room for {} bytes beside {} while the files are being looked at",
        bytes, have));
  }
  const std::uint64_t budget =
      anchor ? limits.disk_budget_bytes : limits.spill_budget_bytes;
  // Evicting an anchor may leave its chunks to sessions, and then an anchor
  // that uses them takes them back: twice is enough, for what moves only grows.
  for (int round = 0; round < 2; ++round) {
    std::uint64_t need = bytes;
    std::uint64_t pinned = 0;
    {
      const std::lock_guard lock(mutex_);
      if (anchor) need += catalog_.MovingBytes(staged.pended);
      // What no eviction gives back.
      pinned = catalog_.PinnedBytes(write.kind);
      if (anchor) pinned += OutsideCatalog();
    }
    absl::Status room =
        need + pinned > budget
            ? absl::ResourceExhaustedError("larger than the budget")
            : EvictTo(write.kind, budget - need);
    if (!room.ok()) {
      return absl::Status(
          room.code(), fmt::format("no room for {} bytes in a budget of {}: {}",
                                   need, budget, std::string(room.message())));
    }
  }
  return absl::OkStatus();
}

absl::Status ChunkStore::StageChunks(const ManifestWrite& write,
                                     Staged& staged) {
  for (std::size_t i = 0; i < staged.chunks.size(); ++i) {
    if (staged.chunks[i].shared) {
      ++staged.result.chunks_shared;
      if (write.chunk_read) write.chunk_read(i);
      continue;
    }
    if (write.pace) {
      write.pace(write.chunks[i].block_count() * write.layout.BlockBytes());
    }
    if (parts_.clock.Now() >= write.deadline) {
      // What was written is kept as a shorter prefix, if a state lies in it.
      const std::uint64_t end = staged.chunks[i].first_position;
      const bool any = std::any_of(
          write.states.begin(), write.states.end(),
          [&](const StateWrite& state) { return state.position <= end; });
      if (write.kind == FileKind::kAnchor || !any) {
        return absl::DeadlineExceededError(fmt::format(
            "{} of {} chunks were written in time", i, staged.chunks.size()));
      }
      staged.end_position = end;
      staged.chunks.resize(i);
      return absl::OkStatus();
    }
    if (auto s = StageChunk(write, i, staged); !s.ok()) return s;
    if (write.still_leased && !write.still_leased()) {
      Count(&StoreCounters::leases_lost);
      staged.counted = true;
      return absl::AbortedError(
          fmt::format("the lease ended while chunk {} was read", i));
    }
    if (write.chunk_read) write.chunk_read(i);
  }
  return absl::OkStatus();
}

absl::Status ChunkStore::StageChunk(const ManifestWrite& write, std::size_t i,
                                    Staged& staged) {
  Staged::Chunk& chunk = staged.chunks[i];
  const ChunkWrite& rows = write.chunks[i];
  if (rows.block_count() == 0) {
    return absl::AbortedError(
        fmt::format("chunk {} went, and its rows were not given", i));
  }
  const auto here = RowsOf(write, i, staged);
  if (!here.ok()) return here.status();
  FileMeta meta = CommonMeta(write);
  meta.kind = FileKind::kChunk;
  meta.file_key = chunk.file_key;
  meta.prefix_key = chunk.prefix_key;
  meta.parent_key = staged.keys.BlockKey(chunk.first_position);
  meta.first_position = chunk.first_position;
  meta.end_position = chunk.end_position;
  meta.provenance = rows.provenance;
  meta.view_sums = chunk.sums;
  const auto ids = write.key_ids.subspan(
      chunk.first_position, chunk.end_position - chunk.first_position);
  meta.key_ids.assign(ids.begin(), ids.end());
  std::vector<std::span<const std::byte>> payload;
  for (const std::byte* block : here->blocks) {
    payload.emplace_back(block, write.layout.BlockBytes());
  }
  chunk.tmp = TmpPath();
  const std::uint64_t bytes = here->blocks.size() * write.layout.BlockBytes();
  const Deadline deadline =
      StepDeadline() + std::chrono::milliseconds(bytes / kSlowestBytesPerMs);
  auto sync = StartCacheFile(parts_.fs, parts_.pool, chunk.tmp, meta, payload,
                             here->keep_alive, deadline);
  if (!sync.ok()) return sync.status();
  chunk.sync = *std::move(sync);
  chunk.row = ChunkRowOf(meta);
  ++staged.result.chunks_written;
  staged.result.bytes_written += chunk.row.file_bytes;
  return absl::OkStatus();
}

absl::Status ChunkStore::StageManifest(const ManifestWrite& write,
                                       Staged& staged) {
  FileMeta meta = CommonMeta(write);
  meta.kind = write.kind;
  meta.parent_key = write.root;
  meta.end_position = staged.end_position;
  meta.prefix_key = staged.keys.KeyAt(staged.end_position);
  meta.taint = write.taint < staged.end_position ? write.taint : kNoTaint;
  std::vector<std::span<const std::byte>> payload;
  std::uint64_t offset = 0;
  for (const StateWrite& state : write.states) {
    if (state.position > staged.end_position) continue;
    meta.states.push_back({state.position, offset, state.kind, state.provenance,
                           staged.keys.BlockKey(state.position)});
    payload.push_back(state.bytes);
    offset += state.bytes.size();
  }
  for (const Staged::Chunk& chunk : staged.chunks) {
    meta.chunks.push_back({chunk.file_key, chunk.prefix_key, chunk.end_position,
                           chunk.row.file_bytes});
  }
  if (write.kind == FileKind::kSession) {
    meta.provenance =
        meta.taint == kNoTaint ? Provenance::kGrid : Provenance::kSession;
    const auto ids = write.key_ids.first(staged.end_position);
    meta.key_ids.assign(ids.begin(), ids.end());
    meta.session_id = write.session_id;
    meta.session_key = write.session_key;
    meta.record = write.record;
    const std::lock_guard lock(mutex_);
    meta.sequence = std::max(catalog_.NextSequence(write.session_id),
                             staged.older_sequence + 1);
  }
  meta.file_key = FileKeyOf(meta);
  staged.manifest_tmp = TmpPath();
  const Deadline deadline =
      StepDeadline() + std::chrono::milliseconds(offset / kSlowestBytesPerMs);
  if (auto s = WriteCacheFile(parts_.fs, parts_.pool, staged.manifest_tmp, meta,
                              payload, write.keep_alive, deadline);
      !s.ok()) {
    return s;
  }
  for (const Staged::Chunk& chunk : staged.chunks) {
    if (chunk.sync == nullptr) continue;
    if (auto s = chunk.sync->WaitAll(StepDeadline()); !s.ok()) return s;
  }
  staged.result.file_key = meta.file_key;
  staged.result.end_position = meta.end_position;
  staged.result.bytes_written += meta.file_bytes();
  staged.manifest = std::move(meta);
  return absl::OkStatus();
}

absl::Status ChunkStore::Publish(Staged& staged) {
  const auto pass = mutation_gate_.Enter(StepDeadline());
  if (!pass.ok()) return pass.status();
  {
    const std::lock_guard lock(mutex_);
    for (const Staged::Chunk& chunk : staged.chunks) {
      if (chunk.shared && catalog_.FindChunk(chunk.file_key) == nullptr) {
        return absl::AbortedError("a chunk it shares failed a check meanwhile");
      }
    }
  }
  if (auto s = PublishNames(staged); !s.ok()) return s;
  if (auto s = PublishRows(staged); !s.ok()) return s;
  return AddToCatalog(staged);
}

absl::Status ChunkStore::PublishNames(Staged& staged) {
  bool any = false;
  for (Staged::Chunk& chunk : staged.chunks) {
    if (chunk.tmp.empty()) continue;
    // Crash before: a temporary, removed at start.
    if (auto s =
            parts_.fs.Rename(chunk.tmp, Path(FileKind::kChunk, chunk.file_key));
        !s.ok()) {
      return s;
    }
    chunk.tmp.clear();
    chunk.published = true;
    any = true;
    if (sweep_ != nullptr) sweep_->Replaced(FileKind::kChunk, chunk.file_key);
    ForgetCondemned(chunk.file_key);
  }
  if (any) {
    if (auto s = parts_.fs.SyncDirectory(Folder(FileKind::kChunk)); !s.ok()) {
      return s;
    }
  }
  // Crash here: chunks that nothing refers to, removed at start.
  const FileMeta& meta = staged.manifest;
  if (auto s =
          parts_.fs.Rename(staged.manifest_tmp, Path(meta.kind, meta.file_key));
      !s.ok()) {
    return s;
  }
  staged.manifest_tmp.clear();
  staged.manifest_published = true;
  if (sweep_ != nullptr) sweep_->Replaced(meta.kind, meta.file_key);
  ForgetCondemned(meta.file_key);
  // Crash after: complete files without rows, adopted at start.
  return parts_.fs.SyncDirectory(Folder(meta.kind));
}

// The name stands for a new file now.
void ChunkStore::ForgetCondemned(const FileKey& key) {
  const std::lock_guard lock(mutex_);
  const auto it = condemned_.find(key);
  if (it == condemned_.end()) return;
  open_files_.Deleted(key, it->second.bytes);
  condemned_.erase(it);
}

absl::Status ChunkStore::PublishRows(Staged& staged) {
  IndexBatch batch;
  for (const Staged::Chunk& chunk : staged.chunks) {
    if (!chunk.published) continue;
    const std::string key = RowKey(chunk.row.fingerprint, chunk.row.file_key);
    batch.Put(Table::kChunks, key, EncodeRow(key, chunk.row));
    batch.Delete(Table::kTombstones,
                 TombstoneKey(FileKind::kChunk, chunk.row.file_key));
  }
  const ManifestRow row =
      ManifestRowOf(staged.manifest, service_clock_->Seconds());
  const std::string key = RowKey(row.fingerprint, row.file_key);
  batch.Put(TableOf(row.kind), key, EncodeRow(key, row));
  batch.Delete(Table::kTombstones, TombstoneKey(row.kind, row.file_key));
  staged.pinned = OlderIsPinned(row);
  if (staged.pinned) PutPin(batch, row.file_key);
  return parts_.index.Write(batch, Durability::kSynced);
}

// A pin is the conversation's: the file that replaces it has it too.
bool ChunkStore::OlderIsPinned(const ManifestRow& row) const {
  if (row.kind != FileKind::kSession) return false;
  bool pinned = sweep_ != nullptr && sweep_->HasPinned(row.session_id);
  const std::lock_guard lock(mutex_);
  for (const CatalogManifest* older : catalog_.Sessions(row.session_id)) {
    pinned |= older->pinned;
  }
  return pinned;
}

absl::Status ChunkStore::AddToCatalog(Staged& staged) {
  const ManifestRow row =
      ManifestRowOf(staged.manifest, service_clock_->Seconds());
  std::vector<FileKey> older;
  {
    const std::lock_guard lock(mutex_);
    for (const Staged::Chunk& chunk : staged.chunks) {
      if (chunk.published) catalog_.AddChunk(chunk.row);
    }
    if (!catalog_.AddManifest(row, 0, row.created_s, staged.pinned) &&
        catalog_.FindManifest(row.file_key) == nullptr) {
      return absl::AbortedError("a chunk it shares failed a check meanwhile");
    }
    ++(row.kind == FileKind::kAnchor ? counters_.anchors_written
                                     : counters_.sessions_written);
    counters_.chunks_written += staged.result.chunks_written;
    counters_.chunks_shared += staged.result.chunks_shared;
    counters_.bytes_written += staged.result.bytes_written;
    counters_.sessions_cut += staged.end_position != staged.requested_position;
    if (row.kind == FileKind::kSession) {
      for (const CatalogManifest* file : catalog_.Sessions(row.session_id)) {
        if (file->row.sequence < row.sequence) {
          older.push_back(file->row.file_key);
        }
      }
    }
  }
  // The new file is durable: what the older one alone needed may go. When this
  // fails, the next start keeps the newest.
  (void)Drop(older, &StoreCounters::replaced_sessions);
  return absl::OkStatus();
}

// Leaves nothing of a manifest that failed.
void ChunkStore::Discard(Staged& staged) {
  std::vector<std::string> litter = {staged.manifest_tmp};
  for (const Staged::Chunk& chunk : staged.chunks) litter.push_back(chunk.tmp);
  RemoveTemporaries(litter);
  std::vector<DroppedFile> published;
  {
    const std::lock_guard lock(mutex_);
    for (const Staged::Chunk& chunk : staged.chunks) {
      if (!chunk.published) continue;
      const auto fallen = catalog_.RemoveChunk(chunk.file_key);
      published.insert(published.end(), fallen.begin(), fallen.end());
      published.push_back({FileKind::kChunk, chunk.file_key,
                           chunk.row.fingerprint, chunk.row.file_bytes});
    }
    if (staged.manifest_published) {
      const FileMeta& meta = staged.manifest;
      published.push_back(
          {meta.kind, meta.file_key, meta.fingerprint, meta.file_bytes()});
    }
    for (const DroppedFile& file : published) {
      condemned_[file.file_key] = file;
    }
  }
  if (published.empty()) return;
  const auto pass = mutation_gate_.Enter(StepDeadline());
  if (pass.ok()) (void)FinishDeletions();
}

// What cannot be unlinked now, Maintain() tries again.
void ChunkStore::RemoveTemporaries(const std::vector<std::string>& paths) {
  std::map<std::string, std::uint64_t> left;
  std::vector<std::string> gone;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    const auto s = parts_.fs.Unlink(path);
    if (s.ok() || absl::IsNotFound(s)) {
      gone.push_back(path);
    } else {
      left[path] = 0;
    }
  }
  if (!left.empty()) {
    // What they take meanwhile.
    const std::string folder = options_.folder + "/" + kTmpFolder;
    const auto entries = parts_.fs.List(folder);
    for (const DirectoryEntry& entry :
         entries.ok() ? *entries : std::vector<DirectoryEntry>()) {
      const auto it = left.find(folder + "/" + entry.name);
      if (it != left.end()) it->second = entry.bytes;
    }
  }
  const std::lock_guard lock(mutex_);
  for (const std::string& path : gone) litter_.erase(path);
  for (const auto& [path, bytes] : left) litter_[path] = bytes;
}

void ChunkStore::CountFailure(const absl::Status& status) {
  Count(absl::IsDeadlineExceeded(status) ? &StoreCounters::deadlines_missed
                                         : &StoreCounters::write_errors);
}

}  // namespace holdfast::cachesvc
