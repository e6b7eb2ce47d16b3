// What the store keeps in the index's meta table.
#ifndef HOLDFAST_CACHESVC_STORE_SETTINGS_H_
#define HOLDFAST_CACHESVC_STORE_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachesvc/index/index.h"
#include "cachesvc/store/store_types.h"

namespace holdfast::cachesvc {

// 0 for a new index.
absl::StatusOr<std::uint64_t> LoadServiceSeconds(Index& index);
void PutServiceSeconds(IndexBatch& batch, std::uint64_t seconds);

// Those an operator has set; nothing: the configuration's hold.
absl::StatusOr<std::optional<StoreLimits>> LoadLimits(Index& index);
absl::Status StoreLimitsRow(Index& index, const StoreLimits& limits);

// Pins live apart from the rows, so that rebuilding the rows keeps them.
absl::StatusOr<std::set<FileKey>> LoadPins(Index& index);
void PutPin(IndexBatch& batch, const FileKey& key);
void DeletePin(IndexBatch& batch, const FileKey& key);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_SETTINGS_H_
