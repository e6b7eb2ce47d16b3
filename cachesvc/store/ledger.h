// What the cache files do not say of themselves and must not be lost with the
// index: the limits that an operator set, pins, uses, the service clock, and
// which conversations were resident at the last planned stop.
//
// The index has all of it; one small file beside it (FORMAT.md, the ledger)
// has it again. The file is read when there is no index, or a damaged one was
// moved aside, and replaced whole whenever what it says has changed.
#ifndef HOLDFAST_CACHESVC_STORE_LEDGER_H_
#define HOLDFAST_CACHESVC_STORE_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachesvc/index/index.h"
#include "cachesvc/index/rows.h"
#include "cachesvc/io/io_pool.h"
#include "cachesvc/store/store_types.h"
#include "shared/aligned_buffer.h"
#include "shared/fs/file_system.h"

namespace holdfast::cachesvc {

inline constexpr char kLedgerName[] = "ledger";

struct Ledger {
  std::uint64_t service_seconds = 0;
  std::optional<StoreLimits> limits;  // nothing: the configuration's hold
  std::set<FileKey> pins;
  std::map<FileKey, HitRow> uses;
  // By fingerprint, in the order they were stored.
  std::map<Sha256Digest, std::vector<FileKey>> residents;

  bool operator==(const Ledger&) const = default;
};

// What an index says; nothing for one that has never been written to.
absl::StatusOr<std::optional<Ledger>> LedgerOf(Index& index);
// Rows for all of it, for an index that has none of them.
void PutLedger(IndexBatch& batch, const Ledger& ledger);

// Whole pages.
AlignedBuffer EncodeLedger(const Ledger& ledger);
// DataLoss, with the reason, for whatever EncodeLedger() did not write.
absl::StatusOr<Ledger> DecodeLedger(std::span<const std::byte> bytes);

// NotFound: there is none. DataLoss: it is damaged.
absl::StatusOr<Ledger> ReadLedger(FileSystem& fs, IoPool& pool,
                                  const std::string& folder, Deadline deadline);
// Writes `tmp`, makes it durable and puts it in the place of the older one. On
// error the older one stands, and `tmp` may be there. Returns the file's size.
absl::StatusOr<std::uint64_t> WriteLedger(FileSystem& fs, IoPool& pool,
                                          const std::string& folder,
                                          const std::string& tmp,
                                          const Ledger& ledger,
                                          Deadline deadline);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_LEDGER_H_
