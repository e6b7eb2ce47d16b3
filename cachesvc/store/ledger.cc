#include "cachesvc/store/ledger.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "cachesvc/format/file_format.h"
#include "cachesvc/store/settings.h"
#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

using format::LedgerHeader;
using format::LedgerResident;
using format::LedgerUse;

// 24 MB: as many uses as entries a large folder has.
constexpr std::uint32_t kMostRecords = 500'000;

std::size_t BodyBytes(const LedgerHeader& header) {
  return header.pins * sizeof(FileKey) + header.uses * sizeof(LedgerUse) +
         header.residents * sizeof(LedgerResident);
}

class Writer {
 public:
  explicit Writer(std::span<std::byte> to) : to_(to) {}
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(to_.data(), &value, sizeof(value));
    to_ = to_.subspan(sizeof(value));
  }

 private:
  std::span<std::byte> to_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> from) : from_(from) {}
  template <typename T>
  T Get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, from_.data(), sizeof(value));
    from_ = from_.subspan(sizeof(value));
    return value;
  }

 private:
  std::span<const std::byte> from_;
};

std::uint32_t HeaderCrc(const LedgerHeader& header) {
  return Crc32c(std::as_bytes(std::span(&header, 1))
                    .first(offsetof(LedgerHeader, header_crc32c)));
}

absl::Status Damaged(const char* what) {
  return absl::DataLossError(fmt::format("the ledger: {}", what));
}

absl::Status CheckHeader(const LedgerHeader& header, std::size_t file_bytes) {
  if (header.magic != format::kLedgerMagic) return Damaged("no magic");
  if (header.header_crc32c != HeaderCrc(header)) {
    return Damaged("the sum of its header");
  }
  if (header.version != format::kLedgerVersion ||
      header.header_bytes != sizeof(header)) {
    return Damaged("another version");
  }
  if (header.pins > kMostRecords || header.uses > kMostRecords ||
      header.residents > kMostRecords ||
      file_bytes != PagesUp(sizeof(header) + BodyBytes(header))) {
    return Damaged("its size");
  }
  return absl::OkStatus();
}

absl::Status RunIo(IoPool& pool, IoRequest request,
                   std::shared_ptr<const void> keep_alive, Deadline deadline) {
  auto batch = pool.Submit({std::move(request)}, std::move(keep_alive));
  return batch.ok() ? (*batch)->WaitAll(deadline) : batch.status();
}

}  // namespace

absl::StatusOr<std::optional<Ledger>> LedgerOf(Index& index) {
  const auto written = HasServiceSeconds(index);
  if (!written.ok()) return written.status();
  if (!*written) return std::optional<Ledger>();
  Ledger ledger;
  auto seconds = LoadServiceSeconds(index);
  if (!seconds.ok()) return seconds.status();
  ledger.service_seconds = *seconds;
  auto limits = LoadLimits(index);
  if (!limits.ok()) return limits.status();
  ledger.limits = *limits;
  auto pins = LoadPins(index);
  if (!pins.ok()) return pins.status();
  ledger.pins = *std::move(pins);
  auto residents = LoadResidents(index);
  if (!residents.ok()) return residents.status();
  ledger.residents = *std::move(residents);
  auto uses = LoadUses(index, nullptr);
  if (!uses.ok()) return uses.status();
  ledger.uses = *std::move(uses);
  return std::optional(std::move(ledger));
}

void PutLedger(IndexBatch& batch, const Ledger& ledger) {
  PutServiceSeconds(batch, ledger.service_seconds);
  if (ledger.limits) PutLimits(batch, *ledger.limits);
  for (const FileKey& key : ledger.pins) PutPin(batch, key);
  for (const auto& [key, use] : ledger.uses) {
    const std::string row = HitKey(key);
    batch.Put(Table::kHits, row, EncodeRow(row, use));
  }
  for (const auto& [fingerprint, keys] : ledger.residents) {
    PutResidents(batch, fingerprint, keys);
  }
}

AlignedBuffer EncodeLedger(const Ledger& ledger) {
  LedgerHeader header{};
  header.magic = format::kLedgerMagic;
  header.version = format::kLedgerVersion;
  header.header_bytes = sizeof(header);
  header.service_seconds = ledger.service_seconds;
  header.limits_set = ledger.limits.has_value() ? 1 : 0;
  const StoreLimits limits = ledger.limits.value_or(StoreLimits{});
  if (ledger.limits) {
    header.disk_budget_bytes = limits.disk_budget_bytes;
    header.spill_budget_bytes = limits.spill_budget_bytes;
    header.ttl_s = limits.ttl_s;
    header.free_floor_bytes = limits.free_floor_bytes;
  }
  const auto count = [](std::size_t n) {
    return static_cast<std::uint32_t>(std::min<std::size_t>(n, kMostRecords));
  };
  header.pins = count(ledger.pins.size());
  header.uses = count(ledger.uses.size());
  for (const auto& [fingerprint, keys] : ledger.residents) {
    header.residents += static_cast<std::uint32_t>(keys.size());
  }
  const std::size_t body = BodyBytes(header);
  AlignedBuffer bytes(PagesUp(sizeof(header) + body));
  Writer to(bytes.span().subspan(sizeof(header)));
  std::uint32_t left = header.pins;
  for (const FileKey& key : ledger.pins) {
    if (left-- == 0) break;
    to.Put(key);
  }
  left = header.uses;
  for (const auto& [key, use] : ledger.uses) {
    if (left-- == 0) break;
    LedgerUse out{};
    std::copy(key.begin(), key.end(), out.file_key);
    out.hits = use.hits;
    out.last_used_s = use.last_used_s;
    to.Put(out);
  }
  for (const auto& [fingerprint, keys] : ledger.residents) {
    for (const FileKey& key : keys) {
      LedgerResident out{};
      std::copy(fingerprint.begin(), fingerprint.end(), out.fingerprint);
      std::copy(key.begin(), key.end(), out.file_key);
      to.Put(out);
    }
  }
  header.body_crc32c = Crc32c(bytes.span().subspan(sizeof(header), body));
  header.header_crc32c = HeaderCrc(header);
  Writer(bytes.span()).Put(header);
  return bytes;
}

absl::StatusOr<Ledger> DecodeLedger(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(LedgerHeader)) return Damaged("its size");
  Reader from(bytes);
  const auto header = from.Get<LedgerHeader>();
  if (auto s = CheckHeader(header, bytes.size()); !s.ok()) return s;
  if (Crc32c(bytes.subspan(sizeof(header), BodyBytes(header))) !=
      header.body_crc32c) {
    return Damaged("the sum of its records");
  }
  Ledger ledger;
  ledger.service_seconds = header.service_seconds;
  if (header.limits_set != 0) {
    ledger.limits = StoreLimits{.disk_budget_bytes = header.disk_budget_bytes,
                                .spill_budget_bytes = header.spill_budget_bytes,
                                .ttl_s = header.ttl_s,
                                .free_floor_bytes = header.free_floor_bytes};
  }
  for (std::uint32_t i = 0; i < header.pins; ++i) {
    ledger.pins.insert(from.Get<FileKey>());
  }
  for (std::uint32_t i = 0; i < header.uses; ++i) {
    const auto use = from.Get<LedgerUse>();
    FileKey key;
    std::copy(std::begin(use.file_key), std::end(use.file_key), key.begin());
    ledger.uses[key] = {use.hits, use.last_used_s};
  }
  for (std::uint32_t i = 0; i < header.residents; ++i) {
    const auto resident = from.Get<LedgerResident>();
    Sha256Digest fingerprint;
    FileKey key;
    std::copy(std::begin(resident.fingerprint), std::end(resident.fingerprint),
              fingerprint.begin());
    std::copy(std::begin(resident.file_key), std::end(resident.file_key),
              key.begin());
    ledger.residents[fingerprint].push_back(key);
  }
  return ledger;
}

absl::StatusOr<Ledger> ReadLedger(FileSystem& fs, IoPool& pool,
                                  const std::string& folder,
                                  Deadline deadline) {
  const auto entries = fs.List(folder);
  if (!entries.ok()) return entries.status();
  const auto entry = std::find_if(
      entries->begin(), entries->end(),
      [](const DirectoryEntry& e) { return e.name == kLedgerName; });
  if (entry == entries->end()) return absl::NotFoundError("no ledger");
  const std::uint64_t most =
      sizeof(LedgerHeader) +
      kMostRecords *
          (sizeof(FileKey) + sizeof(LedgerUse) + sizeof(LedgerResident));
  if (entry->bytes == 0 || entry->bytes % format::kPadding != 0 ||
      entry->bytes > PagesUp(most)) {
    return Damaged("its size");
  }
  auto file = fs.Open(folder + "/" + kLedgerName, OpenMode::kRead);
  if (!file.ok()) return file.status();
  const auto bytes = std::make_shared<AlignedBuffer>(entry->bytes);
  const auto status =
      RunIo(pool, IoRequest::Read(*file, 0, bytes->span()), bytes, deadline);
  if (!status.ok()) return status;
  return DecodeLedger(bytes->span());
}

absl::StatusOr<std::uint64_t> WriteLedger(FileSystem& fs, IoPool& pool,
                                          const std::string& folder,
                                          const std::string& tmp,
                                          const Ledger& ledger,
                                          Deadline deadline) {
  const auto bytes = std::make_shared<AlignedBuffer>(EncodeLedger(ledger));
  auto file = fs.Open(tmp, OpenMode::kCreate);
  if (!file.ok()) return file.status();
  if (auto s = (*file)->Allocate(bytes->size()); !s.ok()) return s;
  for (IoRequest& request : std::vector<IoRequest>{
           IoRequest::Write(*file, 0, bytes->span()), IoRequest::Sync(*file)}) {
    if (auto s = RunIo(pool, std::move(request), bytes, deadline); !s.ok()) {
      return s;
    }
  }
  // Crash before: the older one. After, at any moment: either, whole.
  if (auto s = fs.Rename(tmp, folder + "/" + kLedgerName); !s.ok()) return s;
  if (auto s = fs.SyncDirectory(folder); !s.ok()) return s;
  return std::uint64_t{bytes->size()};
}

}  // namespace holdfast::cachesvc
