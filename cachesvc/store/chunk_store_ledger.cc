// What the store keeps beside its files' own words.
#include <utility>

#include "cachesvc/store/chunk_store.h"
#include "cachesvc/store/settings.h"

namespace holdfast::cachesvc {
namespace {

// The clock alone is no reason to write the file more often: ages may be off by
// so much after the loss of an index.
constexpr std::uint64_t kClockLag = 600;

}  // namespace

absl::Status ChunkStore::LoadSettings() {
  const auto path = options_.folder;
  auto ledger = LedgerOf(parts_.index);
  if (!ledger.ok()) return ledger.status();
  auto file = ReadLedger(parts_.fs, parts_.pool, path, StepDeadline());
  if (file.ok()) {
    saved_ = *file;
    ledger_bytes_ = EncodeLedger(*file).size();
  } else if (!absl::IsNotFound(file.status())) {
    // It is written anew from what the index says.
    sweep_report_.ledger_error = std::string(file.status().message());
    if (absl::IsDataLoss(file.status())) ++counters_.corrupt_files;
  }
  if (!ledger->has_value()) {
    // A disk that does not read now is no reason to forget it for good.
    if (!file.ok() && !absl::IsNotFound(file.status()) &&
        !absl::IsDataLoss(file.status())) {
      return file.status();
    }
    *ledger = file.ok() ? *std::move(file) : Ledger();
    sweep_report_.from_ledger = saved_.has_value();
    IndexBatch batch;
    PutLedger(batch, **ledger);
    // Crash before: the next start does the same.
    if (auto s = parts_.index.Write(batch, Durability::kSynced); !s.ok()) {
      return s;
    }
  }
  service_clock_ =
      std::make_unique<ServiceClock>(parts_.clock, (*ledger)->service_seconds);
  if ((*ledger)->limits) limits_ = *(*ledger)->limits;
  return absl::OkStatus();
}

absl::Status ChunkStore::WriteSettings(const IndexBatch& batch) {
  if (auto s = parts_.index.Write(batch, Durability::kSynced); !s.ok()) {
    return s;
  }
  // It holds already; Maintain() writes the copy when it cannot be written now.
  if (!SaveLedger().ok()) Count(&StoreCounters::write_errors);
  return absl::OkStatus();
}

absl::Status ChunkStore::SaveLedger() {
  auto ledger = LedgerOf(parts_.index);
  if (!ledger.ok()) return ledger.status();
  if (!ledger->has_value()) return absl::OkStatus();
  const std::uint64_t seconds = (*ledger)->service_seconds;
  if (saved_ && seconds - saved_->service_seconds < kClockLag) {
    (*ledger)->service_seconds = saved_->service_seconds;
    if (**ledger == *saved_) return absl::OkStatus();
    (*ledger)->service_seconds = seconds;
  }
  const std::string tmp = TmpPath();
  const auto bytes = WriteLedger(parts_.fs, parts_.pool, options_.folder, tmp,
                                 **ledger, StepDeadline());
  if (!bytes.ok()) {
    RemoveTemporaries({tmp});
    return bytes.status();
  }
  saved_ = **std::move(ledger);
  const std::lock_guard lock(mutex_);
  ledger_bytes_ = *bytes;
  return absl::OkStatus();
}

absl::Status ChunkStore::SetResidents(const Sha256Digest& fingerprint,
                                      std::span<const FileKey> sessions) {
  const auto pass = mutation_gate_.Enter(StepDeadline());
  if (!pass.ok()) return pass.status();
  IndexBatch batch;
  PutResidents(batch, fingerprint, sessions);
  return WriteSettings(batch);
}

absl::StatusOr<std::vector<FileKey>> ChunkStore::TakeResidents(
    const Sha256Digest& fingerprint, Deadline deadline) {
  const auto pass = mutation_gate_.Enter(deadline);
  if (!pass.ok()) return pass.status();
  auto residents = LoadResidents(parts_.index);
  if (!residents.ok()) return residents.status();
  const auto found = residents->find(fingerprint);
  if (found == residents->end()) return std::vector<FileKey>();
  IndexBatch batch;
  PutResidents(batch, fingerprint, {});
  if (auto s = WriteSettings(batch); !s.ok()) return s;
  return std::move(found->second);
}

absl::StatusOr<FileMeta> ChunkStore::ReadManifest(const FileKey& manifest,
                                                  Deadline deadline) {
  ManifestRow row;
  {
    const std::lock_guard lock(mutex_);
    const CatalogManifest* found = catalog_.FindManifest(manifest);
    if (found == nullptr) {
      return absl::NotFoundError("no anchor or session " + ToHex(manifest));
    }
    row = found->row;
  }
  const auto file =
      OpenCacheFile(parts_.fs, parts_.pool, Path(row.kind, row.file_key),
                    row.meta_bytes, row.file_bytes, deadline);
  if (!file.ok()) return file.status();
  if (file->meta->file_key != manifest) {
    return absl::DataLossError(file->file->path() +
                               ": its key is another file's");
  }
  return *file->meta;
}

}  // namespace holdfast::cachesvc
