// Between the wire's words for the tiers and ours.
#ifndef HOLDFAST_CACHESVC_SERVICE_TIER_CALLS_H_
#define HOLDFAST_CACHESVC_SERVICE_TIER_CALLS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cachesvc/disk/disk_tier.h"
#include "cachesvc/restore/restore_book.h"
#include "cachesvc/statestore/state_store.h"
#include "holdfast/v1/cache.pb.h"

namespace holdfast::cachesvc {

// Nothing for bytes that are no digest.
std::optional<Sha256Digest> DigestOf(const std::string& bytes);
std::string BytesOf(const Sha256Digest& digest);
v1::Tier TierOf(FileKind kind);
// Nothing for tiers that are not on disk.
std::optional<FileKind> KindOf(v1::Tier tier);

struct NamedPrompt {
  PrefixKey root{};
  std::vector<PrefixKey> block_keys;
};
// InvalidArgument: not whole keys.
absl::StatusOr<NamedPrompt> FromProto(const v1::PromptKeys& proto);

void ToProto(const Candidate& candidate, v1::TierCandidate* proto);
void ToProto(const StoreCandidate& candidate, v1::TierCandidate* proto);
// Entries of the state store have numbers; on the wire they fill a key.
Sha256Digest KeyOfEntry(std::uint64_t entry);
std::uint64_t EntryOfKey(const Sha256Digest& key);
void ToProto(const HandedPieces& handed, v1::RestoreNextResponse* proto);
void ToProto(const StoreAnswer& answer, v1::StoreResponse* proto);
void ToProto(const StoredResident& resident, v1::Resident* proto);

// All of it but the engine's own part: fingerprint, layout and pool.
absl::StatusOr<LeasedStore> FromProto(const v1::StoreRequest& proto);

absl::StatusOr<EndRecord> FromProto(const v1::PutRecordRequest& proto);

MeasuredRates FromProto(const v1::MeasuredCosts& proto);
void ToProto(const MeasuredRates& rates, v1::MeasuredCosts* proto);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_SERVICE_TIER_CALLS_H_
