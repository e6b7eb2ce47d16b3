// What the store keeps in the index's meta table.
#ifndef HOLDFAST_CACHESVC_STORE_SETTINGS_H_
#define HOLDFAST_CACHESVC_STORE_SETTINGS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachesvc/index/index.h"
#include "cachesvc/index/rows.h"
#include "cachesvc/store/store_types.h"

namespace holdfast::cachesvc {

// Whether the index was ever written to by a store.
absl::StatusOr<bool> HasServiceSeconds(Index& index);
// 0 for a new index.
absl::StatusOr<std::uint64_t> LoadServiceSeconds(Index& index);
void PutServiceSeconds(IndexBatch& batch, std::uint64_t seconds);

// Those an operator has set; nothing: the configuration's hold.
absl::StatusOr<std::optional<StoreLimits>> LoadLimits(Index& index);
void PutLimits(IndexBatch& batch, const StoreLimits& limits);

// Pins live apart from the rows, so that rebuilding the rows keeps them.
absl::StatusOr<std::set<FileKey>> LoadPins(Index& index);
void PutPin(IndexBatch& batch, const FileKey& key);
void DeletePin(IndexBatch& batch, const FileKey& key);

// Uses of anchors and sessions. `bad` gets the keys of rows that do not decode;
// it may be empty.
absl::StatusOr<std::map<FileKey, HitRow>> LoadUses(
    Index& index, const std::function<void(std::string_view)>& bad);

// Sessions that were resident when the planned stop of an engine of that
// fingerprint ended, in the order they were stored. No keys: there are none.
using ResidentKeys = std::map<Sha256Digest, std::vector<FileKey>>;
absl::StatusOr<ResidentKeys> LoadResidents(Index& index);
void PutResidents(IndexBatch& batch, const Sha256Digest& fingerprint,
                  std::span<const FileKey> keys);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_SETTINGS_H_
