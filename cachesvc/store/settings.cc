#include "cachesvc/store/settings.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "cachesvc/format/names.h"
#include "shared/sha256.h"

namespace holdfast::cachesvc {
namespace {

constexpr char kSeconds[] = "service_seconds";
constexpr char kLimits[] = "store_limits";
constexpr std::string_view kPin = "pin.";
constexpr std::string_view kResident = "resident.";

template <std::size_t N>
std::string Pack(const std::array<std::uint64_t, N>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), sizeof(numbers)};
}

// Nothing for a row that is absent or of another size.
template <std::size_t N>
absl::StatusOr<std::optional<std::array<std::uint64_t, N>>> Load(
    Index& index, const std::string& key) {
  const auto value = index.Get(Table::kMeta, key);
  if (!value.ok()) return value.status();
  std::array<std::uint64_t, N> numbers;
  if (!value->has_value() || (*value)->size() != sizeof(numbers)) {
    return std::optional<std::array<std::uint64_t, N>>();
  }
  std::memcpy(numbers.data(), (*value)->data(), sizeof(numbers));
  return std::optional(numbers);
}

std::string PinKey(const FileKey& key) {
  return std::string(kPin) + ToHex(key);
}

}  // namespace

absl::StatusOr<bool> HasServiceSeconds(Index& index) {
  const auto row = index.Get(Table::kMeta, kSeconds);
  if (!row.ok()) return row.status();
  return row->has_value();
}

absl::StatusOr<std::uint64_t> LoadServiceSeconds(Index& index) {
  const auto seconds = Load<1>(index, kSeconds);
  if (!seconds.ok()) return seconds.status();
  return seconds->has_value() ? (**seconds)[0] : 0;
}

void PutServiceSeconds(IndexBatch& batch, std::uint64_t seconds) {
  batch.Put(Table::kMeta, kSeconds, Pack<1>({seconds}));
}

absl::StatusOr<std::optional<StoreLimits>> LoadLimits(Index& index) {
  const auto row = Load<4>(index, kLimits);
  if (!row.ok()) return row.status();
  if (!row->has_value()) return std::optional<StoreLimits>();
  const auto& [disk, spill, ttl, floor] = **row;
  return std::optional(StoreLimits{disk, spill, ttl, floor});
}

void PutLimits(IndexBatch& batch, const StoreLimits& limits) {
  batch.Put(Table::kMeta, kLimits,
            Pack<4>({limits.disk_budget_bytes, limits.spill_budget_bytes,
                     limits.ttl_s, limits.free_floor_bytes}));
}

absl::StatusOr<std::set<FileKey>> LoadPins(Index& index) {
  std::set<FileKey> pins;
  auto status =
      index.Scan(Table::kMeta, [&](std::string_view key, std::string_view) {
        if (!key.starts_with(kPin)) return true;
        if (auto file = ParseKey(std::string(key.substr(kPin.size())))) {
          pins.insert(*file);
        }
        return true;
      });
  if (!status.ok()) return status;
  return pins;
}

void PutPin(IndexBatch& batch, const FileKey& key) {
  batch.Put(Table::kMeta, PinKey(key), "1");
}

void DeletePin(IndexBatch& batch, const FileKey& key) {
  batch.Delete(Table::kMeta, PinKey(key));
}

absl::StatusOr<std::map<FileKey, HitRow>> LoadUses(
    Index& index, const std::function<void(std::string_view)>& bad) {
  std::map<FileKey, HitRow> uses;
  auto status = index.Scan(
      Table::kHits, [&](std::string_view key, std::string_view value) {
        FileKey file_key;
        const auto row = DecodeHitRow(key, value);
        if (!row || key.size() != 1 + file_key.size()) {
          if (bad) bad(key);
          return true;
        }
        std::copy(key.begin() + 1, key.end(), file_key.begin());
        uses[file_key] = *row;
        return true;
      });
  if (!status.ok()) return status;
  return uses;
}

absl::StatusOr<ResidentKeys> LoadResidents(Index& index) {
  ResidentKeys residents;
  auto status = index.Scan(Table::kMeta, [&](std::string_view key,
                                             std::string_view value) {
    if (!key.starts_with(kResident)) return true;
    const auto fingerprint =
        ParseKey(std::string(key.substr(kResident.size())));
    if (!fingerprint || value.empty() || value.size() % sizeof(FileKey) != 0) {
      return true;
    }
    std::vector<FileKey>& keys = residents[*fingerprint];
    keys.resize(value.size() / sizeof(FileKey));
    std::memcpy(keys.data(), value.data(), value.size());
    return true;
  });
  if (!status.ok()) return status;
  return residents;
}

void PutResidents(IndexBatch& batch, const Sha256Digest& fingerprint,
                  std::span<const FileKey> keys) {
  std::string row = std::string(kResident) + ToHex(fingerprint);
  if (keys.empty()) {
    batch.Delete(Table::kMeta, std::move(row));
    return;
  }
  batch.Put(Table::kMeta, std::move(row),
            {reinterpret_cast<const char*>(keys.data()), keys.size_bytes()});
}

}  // namespace holdfast::cachesvc
