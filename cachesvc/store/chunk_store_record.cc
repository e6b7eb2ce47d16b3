// What the engine keeps with a spilled session.
#include "absl/status/status.h"
#include "cachesvc/store/chunk_store.h"

namespace holdfast::cachesvc {

absl::StatusOr<std::string> ChunkStore::SessionRecord(
    const Sha256Digest& session_id, Deadline deadline) {
  ManifestRow row;
  std::uint64_t generation = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto newest = catalog_.NewestSession(session_id);
    const CatalogManifest* const found =
        newest ? catalog_.FindManifest(*newest) : nullptr;
    if (found == nullptr || found->row.fingerprint != attached_) {
      return absl::NotFoundError("no such session");
    }
    row = found->row;
    generation = found->generation;
  }
  const auto file =
      OpenCacheFile(parts_.fs, parts_.pool, Path(row.kind, row.file_key),
                    row.meta_bytes, row.file_bytes, deadline);
  if (absl::IsDataLoss(file.status())) {
    ReportBad(row.kind, row.file_key, generation, /*corrupt=*/true);
  }
  if (!file.ok()) return file.status();
  return file->meta->record;
}

}  // namespace holdfast::cachesvc
