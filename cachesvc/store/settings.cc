#include "cachesvc/store/settings.h"

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

absl::Status StoreLimitsRow(Index& index, const StoreLimits& limits) {
  IndexBatch batch;
  batch.Put(Table::kMeta, kLimits,
            Pack<4>({limits.disk_budget_bytes, limits.spill_budget_bytes,
                     limits.ttl_s, limits.free_floor_bytes}));
  return index.Write(batch, Durability::kSynced);
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

}  // namespace holdfast::cachesvc
