#include "cachesvc/store/chunk_store.h"

#include <algorithm>
#include <random>
#include <utility>

#include "cachesvc/format/names.h"
#include "cachesvc/store/settings.h"
#include "cachesvc/store/sweep.h"
#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

// Names of files being written differ from those of an earlier run.
std::uint64_t BootNumber() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

ChunkStore::ChunkStore(const StoreParts& parts, StoreOptions options)
    : parts_(parts),
      options_(std::move(options)),
      boot_(BootNumber()),
      limits_(options_.limits) {}

ChunkStore::~ChunkStore() { (void)FlushUse(); }

absl::StatusOr<std::unique_ptr<ChunkStore>> ChunkStore::Open(
    const StoreParts& parts, StoreOptions options) {
  std::unique_ptr<ChunkStore> store(new ChunkStore(parts, std::move(options)));
  std::vector<std::string> folders = {store->options_.folder + "/" +
                                      kTmpFolder};
  for (const FileKind kind : kAllKinds) folders.push_back(store->Folder(kind));
  for (const std::string& folder : folders) {
    if (auto s = parts.fs.MakeDirectory(folder); !s.ok()) return s;
  }
  if (auto s = parts.fs.SyncDirectory(store->options_.folder); !s.ok()) {
    return s;
  }
  if (auto s = store->LoadSettings(); !s.ok()) return s;
  const auto pass = store->mutation_gate_.Enter(store->StepDeadline());
  if (!pass.ok()) return pass.status();
  store->sweep_ = std::make_unique<Sweep>(*store);
  if (auto s = store->sweep_->Begin(); !s.ok()) return s;
  const auto limit = parts.clock.Now() + store->options_.sweep_limit;
  if (auto s = store->sweep_->Run(limit); !s.ok()) return s;
  const bool from_ledger = store->sweep_report_.from_ledger;
  std::string ledger_error = std::move(store->sweep_report_.ledger_error);
  store->sweep_report_ = store->sweep_->report();
  store->sweep_report_.from_ledger = from_ledger;
  store->sweep_report_.ledger_error = std::move(ledger_error);
  if (store->sweep_->done()) store->sweep_.reset();
  // On a disk that takes no more, Maintain() tries again.
  (void)store->SaveLedger();
  return store;
}

Deadline ChunkStore::StepDeadline() const {
  return std::chrono::steady_clock::now() + options_.io_deadline;
}

std::string ChunkStore::Folder(FileKind kind) const {
  return options_.folder + "/" + FolderOf(kind);
}

std::string ChunkStore::Path(FileKind kind, const FileKey& key) const {
  return Folder(kind) + "/" + FileName(kind, key);
}

std::string ChunkStore::TmpPath() {
  const std::lock_guard lock(mutex_);
  return fmt::format("{}/{}/{:016x}-{}.tmp", options_.folder, kTmpFolder, boot_,
                     next_tmp_++);
}

void ChunkStore::Count(std::uint64_t StoreCounters::*counter,
                       std::uint64_t by) {
  const std::lock_guard lock(mutex_);
  counters_.*counter += by;
}

void ChunkStore::SetAttached(const std::optional<Sha256Digest>& fingerprint) {
  const std::lock_guard lock(mutex_);
  attached_ = fingerprint;
}

std::vector<Candidate> ChunkStore::Lookup(const LookupRequest& request) const {
  const std::lock_guard lock(mutex_);
  return catalog_.Lookup(request);
}

void ChunkStore::NoteUse(const FileKey& manifest) {
  const std::lock_guard lock(mutex_);
  if (catalog_.FindManifest(manifest) == nullptr) return;
  const std::uint64_t now = service_clock_->Seconds();
  catalog_.Touch(manifest, now);
  HitRow& use = fresh_use_[manifest];
  ++use.hits;
  use.last_used_s = now;
}

std::vector<bool> ChunkStore::HasChunks(std::span<const FileKey> chunks) const {
  const std::lock_guard lock(mutex_);
  std::vector<bool> has;
  for (const FileKey& key : chunks) {
    has.push_back(catalog_.FindChunk(key) != nullptr);
  }
  return has;
}

StoreLimits ChunkStore::limits() const {
  const std::lock_guard lock(mutex_);
  return limits_;
}

absl::Status ChunkStore::SetLimits(const StoreLimits& limits) {
  const auto pass = mutation_gate_.Enter(StepDeadline());
  if (!pass.ok()) return pass.status();
  IndexBatch batch;
  PutLimits(batch, limits);
  if (auto s = WriteSettings(batch); !s.ok()) return s;
  {
    const std::lock_guard lock(mutex_);
    limits_ = limits;
  }
  return TrimToBudgets();
}

StoreCounters ChunkStore::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::string ChunkStore::FloorReached(std::uint64_t free,
                                     std::uint64_t bytes) const {
  if (free >= bytes && free - bytes >= limits_.free_floor_bytes) return "";
  return fmt::format(
      "{} bytes are free on the file system of {}; {} must stay free", free,
      options_.folder, limits_.free_floor_bytes);
}

std::uint64_t ChunkStore::OutsideCatalog() const {
  std::uint64_t sum = unadopted_bytes_ + open_files_.HeldBytes() +
                      unknown_bytes_ + index_bytes_ + ledger_bytes_;
  for (const auto& [key, file] : condemned_) sum += file.bytes;
  for (const auto& [path, bytes] : litter_) sum += bytes;
  return sum;
}

void ChunkStore::MeasureIndex() {
  const std::uint64_t bytes = parts_.index.DiskBytes();
  const std::lock_guard lock(mutex_);
  index_bytes_ = bytes;
}

StoreUse ChunkStore::Use() const {
  const auto free = parts_.fs.FreeBytes(options_.folder);
  const std::uint64_t index_bytes = parts_.index.DiskBytes();
  const std::lock_guard lock(mutex_);
  StoreUse use;
  use.disk_bytes = catalog_.disk_bytes();
  use.spill_bytes = catalog_.spill_bytes();
  for (const auto& [key, file] : condemned_) use.condemned_bytes += file.bytes;
  for (const auto& [path, bytes] : litter_) use.condemned_bytes += bytes;
  use.held_bytes = open_files_.HeldBytes();
  use.unknown_bytes = unknown_bytes_;
  use.index_bytes = index_bytes;
  use.unadopted_bytes = unadopted_bytes_;
  use.chunks = catalog_.chunks();
  catalog_.ForEachManifest([&](const CatalogManifest& manifest) {
    ++(manifest.row.kind == FileKind::kAnchor ? use.anchors : use.sessions);
    use.pinned_manifests += manifest.pinned;
    use.foreign_manifests += manifest.row.fingerprint != attached_;
  });
  use.ledger_bytes = ledger_bytes_;
  // Said before anything was refused, too.
  use.not_writing = free.ok() ? FloorReached(*free, 0) : "";
  if (use.not_writing.empty()) use.not_writing = not_writing_;
  return use;
}

absl::Status ChunkStore::FlushUse() {
  IndexBatch batch;
  std::map<FileKey, HitRow> fresh;
  {
    const std::lock_guard lock(mutex_);
    fresh.swap(fresh_use_);
  }
  for (const auto& [key, use] : fresh) {
    const std::string row = HitKey(key);
    batch.Merge(Table::kHits, row, EncodeRow(row, use));
  }
  if (service_clock_ != nullptr) {
    PutServiceSeconds(batch, service_clock_->Seconds());
  }
  return batch.empty() ? absl::OkStatus()
                       : parts_.index.Write(batch, Durability::kSynced);
}

bool ChunkStore::SweepAgain() const {
  const std::lock_guard lock(mutex_);
  return sweep_again_;
}

absl::Status ChunkStore::Maintain() {
  absl::Status first = FlushUse();
  const auto keep = [&](absl::Status status) {
    if (first.ok()) first = std::move(status);
  };
  std::optional<Gate::Pass> writers;
  if (SweepAgain()) {
    auto writing = write_gate_.Enter(StepDeadline());
    if (!writing.ok()) return writing.status();
    writers.emplace(*std::move(writing));
  }
  const auto pass = mutation_gate_.Enter(StepDeadline());
  if (!pass.ok()) return pass.status();
  if (writers) keep(BeginSweep());
  if (sweep_) {
    keep(sweep_->Run(parts_.clock.Now() + options_.sweep_limit));
    if (sweep_->done()) sweep_.reset();
  }
  const std::uint64_t now = service_clock_->Seconds();
  std::optional<Sha256Digest> attached;
  std::uint64_t ttl;
  std::vector<std::string> litter;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [path, bytes] : litter_) litter.push_back(path);
    attached = attached_;
    ttl = limits_.ttl_s;
  }
  RemoveTemporaries(litter);
  keep(DropChosen(
           [&](const CatalogManifest& manifest) {
             const bool expires = manifest.row.kind == FileKind::kAnchor ||
                                  manifest.row.fingerprint != attached;
             return expires && !manifest.pinned &&
                    now > manifest.last_used_s + ttl;
           },
           &StoreCounters::expired)
           .status());
  keep(TrimToBudgets());
  keep(FinishDeletions());
  keep(SaveLedger());
  return first;
}

}  // namespace holdfast::cachesvc
