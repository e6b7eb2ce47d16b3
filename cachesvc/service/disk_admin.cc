#include "cachesvc/service/disk_admin.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "cachesvc/service/tier_calls.h"
#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

void Count(const char* name, std::uint64_t count,
           google::protobuf::RepeatedPtrField<v1::NamedCount>* to) {
  v1::NamedCount* added = to->Add();
  added->set_name(name);
  added->set_count(count);
}

void FillUse(const DiskUse& use, v1::TierStats* tier) {
  tier->set_lookups(use.lookups);
  tier->set_hits(use.hits);
  tier->set_hit_tokens(use.hit_tokens);
  tier->set_read_bytes(use.hit_bytes);
  tier->set_read_ms(use.hit_ms);
  tier->set_stores(use.stores);
  tier->set_written_bytes(use.written_bytes);
  tier->set_write_ms(use.write_ms);
}

// Refusals and damage are the chunk store's, which both tiers share: told once.
void FillShared(const StoreCounters& counters, v1::TierStats* disk) {
  Count("free_space", counters.refused_free_space, disk->mutable_refused());
  Count("budget", counters.refused_budget, disk->mutable_refused());
  Count("lease_lost", counters.leases_lost, disk->mutable_refused());
  Count("deadline", counters.deadlines_missed, disk->mutable_refused());
  Count("io_error", counters.write_errors, disk->mutable_refused());
  Count("restore_mismatch", counters.restore_mismatches,
        disk->mutable_refused());
  Count("restore_error", counters.restore_errors, disk->mutable_refused());
  Count("evicted", counters.evicted_anchors, disk->mutable_removed());
  Count("expired", counters.expired, disk->mutable_removed());
  Count("cleared", counters.cleared, disk->mutable_removed());
  Count("damaged", counters.manifests_lost_to_damage, disk->mutable_removed());
  disk->set_corrupt_files(counters.corrupt_files);
}

void FillStore(const Tiers& tiers, v1::TierStats* store) {
  if (tiers.store == nullptr) return;
  const StateStoreStats stats = tiers.store->stats();
  store->set_available(true);
  store->set_entries(stats.sessions + stats.prefixes);
  store->set_bytes(stats.session_bytes + stats.prefix_bytes +
                   stats.filling_bytes + stats.held_bytes);
  store->set_budget_bytes(tiers.store_budget_bytes);
  FillUse(tiers.store_use.get(), store);
  Count("too_large", stats.refused_too_large, store->mutable_refused());
  Count("in_use", stats.refused_in_use, store->mutable_refused());
  Count("restore_mismatch", stats.mismatches, store->mutable_refused());
  Count("evicted", stats.evicted_sessions + stats.evicted_prefixes,
        store->mutable_removed());
  Count("replaced", stats.replaced, store->mutable_removed());
}

void FillSnapshot(const StateStore::EntryInfo& info, v1::CacheEntry* entry) {
  entry->set_key(BytesOf(KeyOfEntry(info.entry)));
  entry->set_tier(v1::TIER_STORE);
  entry->set_end_tokens(static_cast<std::uint32_t>(info.tokens));
  entry->set_file_bytes(info.bytes);
  entry->set_hits(info.hits);
  entry->set_session_key(info.session_key);
  entry->set_provenance("grid");
}

void FillChunk(const ChunkInfo& info, v1::CacheEntry* entry) {
  entry->set_key(BytesOf(info.file_key));
  entry->set_fingerprint(BytesOf(info.fingerprint));
  entry->set_first_tokens(static_cast<std::uint32_t>(info.first_position));
  entry->set_end_tokens(static_cast<std::uint32_t>(info.end_position));
  entry->set_file_bytes(info.file_bytes);
  entry->set_provenance(info.provenance == Provenance::kGrid ? "grid"
                                                             : "session");
  entry->set_anchors(info.anchors);
  entry->set_sessions(info.sessions);
}

// Largest first; BY_KEY ascends.
std::function<bool(const v1::CacheEntry&, const v1::CacheEntry&)> Order(
    v1::CacheListRequest::Sort sort) {
  using Field = std::uint64_t (*)(const v1::CacheEntry&);
  Field field = nullptr;
  switch (sort) {
    case v1::CacheListRequest::BY_TOKENS:
      field = [](const v1::CacheEntry& e) -> std::uint64_t {
        return e.end_tokens();
      };
      break;
    case v1::CacheListRequest::BY_BYTES:
      field = [](const v1::CacheEntry& e) -> std::uint64_t {
        return e.file_bytes() + e.chunk_bytes();
      };
      break;
    case v1::CacheListRequest::BY_HITS:
      field = [](const v1::CacheEntry& e) -> std::uint64_t { return e.hits(); };
      break;
    case v1::CacheListRequest::BY_UNUSED:
      field = [](const v1::CacheEntry& e) -> std::uint64_t {
        return e.unused_s();
      };
      break;
    default:
      return [](const v1::CacheEntry& a, const v1::CacheEntry& b) {
        return a.key() < b.key();
      };
  }
  return [field](const v1::CacheEntry& a, const v1::CacheEntry& b) {
    return std::pair(field(b), a.key()) < std::pair(field(a), b.key());
  };
}

}  // namespace

void FillTierStatus(const Tiers& tiers, v1::CacheStatus* status) {
  const auto add = [&](const char* name, bool on) {
    v1::TierStatus* tier = status->add_tiers();
    tier->set_name(name);
    tier->set_available(tiers.disk != nullptr && on);
    if (tiers.disk == nullptr) {
      tier->set_detail(tiers.disk_detail);
    } else if (!on) {
      tier->set_detail("switched off");
    } else {
      tier->set_detail(tiers.disk->store().Use().not_writing);
    }
  };
  v1::TierStatus* store = status->add_tiers();
  store->set_name("store");
  store->set_available(tiers.store != nullptr);
  if (tiers.store == nullptr) store->set_detail("switched off");
  add("disk", tiers.disk != nullptr && tiers.disk->options().disk_cache);
  add("spill", tiers.disk != nullptr && tiers.disk->options().session_spill);
}

void FillStats(const Tiers& tiers, v1::CacheStats* stats) {
  stats->set_slots(tiers.slots.slots());
  stats->set_slots_lent(tiers.slots.used());
  v1::TierStats* store = stats->add_tiers();
  store->set_tier(v1::TIER_STORE);
  FillStore(tiers, store);
  if (tiers.store != nullptr) {
    stats->set_store_held_bytes(tiers.store->stats().held_bytes);
  }
  v1::TierStats* disk = stats->add_tiers();
  disk->set_tier(v1::TIER_DISK);
  v1::TierStats* spill = stats->add_tiers();
  spill->set_tier(v1::TIER_SPILL);
  if (tiers.disk == nullptr) return;
  const ChunkStore& chunks = tiers.disk->store();
  const StoreUse use = chunks.Use();
  const StoreLimits limits = chunks.limits();
  disk->set_available(tiers.disk->options().disk_cache);
  disk->set_not_writing(use.not_writing);
  disk->set_entries(use.anchors);
  disk->set_chunks(use.chunks);
  disk->set_bytes(use.charged_bytes());
  disk->set_budget_bytes(limits.disk_budget_bytes);
  disk->set_pinned_entries(use.pinned_manifests);
  disk->set_foreign_entries(use.foreign_manifests);
  FillUse(tiers.disk->use(FileKind::kAnchor), disk);
  const StoreCounters counters = chunks.counters();
  FillShared(counters, disk);
  spill->set_available(tiers.disk->options().session_spill);
  spill->set_not_writing(use.not_writing);
  spill->set_entries(use.sessions);
  spill->set_bytes(use.spill_bytes);
  spill->set_budget_bytes(limits.spill_budget_bytes);
  FillUse(tiers.disk->use(FileKind::kSession), spill);
  Count("cut", counters.sessions_cut, spill->mutable_refused());
  Count("evicted", counters.evicted_sessions, spill->mutable_removed());
  Count("replaced", counters.replaced_sessions, spill->mutable_removed());
  stats->set_index_bytes(use.index_bytes + use.ledger_bytes);
  stats->set_waiting_bytes(use.condemned_bytes + use.unadopted_bytes +
                           use.unknown_bytes);
  stats->set_disk_held_bytes(use.held_bytes);
  stats->set_ttl_s(limits.ttl_s);
  stats->set_free_floor_bytes(limits.free_floor_bytes);
  stats->set_free_bytes(tiers.disk->FreeBytes());
  stats->set_service_clock_s(chunks.service_clock().Seconds());
  stats->set_io(tiers.disk->io());
  stats->set_stale_slots(tiers.restores.stale_returns());
}

void FillEntry(const ManifestInfo& info, v1::CacheEntry* entry) {
  entry->set_key(BytesOf(info.file_key));
  entry->set_tier(TierOf(info.kind));
  entry->set_fingerprint(BytesOf(info.fingerprint));
  entry->set_end_tokens(static_cast<std::uint32_t>(info.end_position));
  entry->set_file_bytes(info.file_bytes);
  entry->set_chunk_bytes(info.chunk_bytes);
  entry->set_chunks(info.chunks);
  entry->set_states(info.states);
  entry->set_hits(info.hits);
  entry->set_age_s(info.age_s);
  entry->set_unused_s(info.unused_s);
  entry->set_pinned(info.pinned);
  entry->set_foreign(info.foreign);
  entry->set_session_key(info.session_key);
  entry->set_provenance(info.taint == kNoTaint ? "grid" : "session");
}

void FillList(const Tiers& tiers, const v1::CacheListRequest& request,
              v1::CacheListResponse* response) {
  std::vector<v1::CacheEntry> entries;
  if (request.what() == v1::CacheListRequest::STORE) {
    for (const StateStore::EntryInfo& info : tiers.store->List()) {
      FillSnapshot(info, &entries.emplace_back());
    }
  } else if (request.what() == v1::CacheListRequest::CHUNKS) {
    for (const ChunkInfo& info : tiers.disk->store().ListChunks()) {
      FillChunk(info, &entries.emplace_back());
    }
  } else {
    const FileKind kind = request.what() == v1::CacheListRequest::SESSIONS
                              ? FileKind::kSession
                              : FileKind::kAnchor;
    for (const ManifestInfo& info : tiers.disk->store().ListManifests()) {
      if (info.kind != kind || (request.foreign() && !info.foreign) ||
          (!request.session_key().empty() &&
           request.session_key() != info.session_key)) {
        continue;
      }
      FillEntry(info, &entries.emplace_back());
    }
  }
  std::sort(entries.begin(), entries.end(), Order(request.sort()));
  response->set_total(static_cast<std::uint32_t>(entries.size()));
  if (request.limit() > 0 && entries.size() > request.limit()) {
    entries.resize(request.limit());
  }
  for (v1::CacheEntry& entry : entries) {
    *response->add_entries() = std::move(entry);
  }
}

absl::StatusOr<StoreLimits> NewLimits(const StoreLimits& now,
                                      const v1::CacheSetDiskRequest& request,
                                      bool allow_small_free_space) {
  StoreLimits limits = now;
  if (request.has_disk_budget_bytes()) {
    limits.disk_budget_bytes = request.disk_budget_bytes();
  }
  if (request.has_spill_budget_bytes()) {
    limits.spill_budget_bytes = request.spill_budget_bytes();
  }
  if (request.has_ttl_s()) limits.ttl_s = request.ttl_s();
  if (request.has_free_floor_bytes()) {
    const std::uint64_t floor = StoreLimits().free_floor_bytes;
    if (request.free_floor_bytes() < floor && !allow_small_free_space) {
      return absl::InvalidArgumentError(fmt::format(
          "free space of {} bytes: less than {} needs a cache service started "
          "with --allow-small-free-space",
          request.free_floor_bytes(), floor));
    }
    limits.free_floor_bytes = request.free_floor_bytes();
  }
  return limits;
}

}  // namespace holdfast::cachesvc
