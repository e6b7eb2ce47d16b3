#include "cachesvc/service/admin_service.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "cachesvc/service/metrics_text.h"
#include "cachesvc/service/tier_calls.h"
#include "fmt/format.h"
#include "shared/grpc_status.h"
#include "spdlog/spdlog.h"

namespace holdfast::cachesvc {
namespace {

using std::chrono::steady_clock;

double SecondsSince(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

void FillLayout(const AnnouncedLayout& in, v1::CacheLayout* out) {
  for (const View& view : in.layout.views) {
    v1::View* added = out->add_views();
    added->set_name(view.name);
    added->set_bytes_per_token(view.bytes_per_token);
  }
  for (const Section& section : in.layout.sections) {
    v1::Section* added = out->add_sections();
    added->set_name(section.name);
    added->set_bytes(section.bytes);
  }
  out->set_block_tokens(in.block_tokens);
  out->set_grid_tokens(in.layout.grid_tokens);
  out->set_block_bytes(in.block_bytes);
  out->set_block_count(in.block_count);
}

void FillEngine(const attach::AttachedPeer& peer, const LayoutBook& layouts,
                v1::AttachedEngine* out) {
  out->set_pid(peer.pid);
  out->set_epoch(peer.epoch);
  out->set_attached_s(SecondsSince(peer.since));
  out->set_fingerprint(peer.fingerprint.data(), peer.fingerprint.size());
  out->set_arena("host");
  out->set_pool_bytes(peer.pool_bytes);
  if (const auto layout = layouts.Get(peer.epoch)) {
    if (layout->device_block_count > 0) out->set_arena("cuda_ipc");
    out->set_model_name(layout->model_name);
    FillLayout(*layout, out->mutable_layout());
  }
}

// One entry's files are read and checked within this.
constexpr std::chrono::minutes kVerifyOne{10};

grpc::Status NoDisk(const Tiers& tiers) {
  return ToGrpcStatus(absl::FailedPreconditionError(
      "nothing is kept on disk: " + tiers.disk_detail));
}

grpc::Status BadKey() {
  return ToGrpcStatus(absl::InvalidArgumentError("a key has 32 bytes"));
}

}  // namespace

grpc::Status AdminService::Status(grpc::ServerContext*,
                                  const v1::CacheStatusRequest*,
                                  v1::CacheStatus* response) {
  const attach::AttachServerState state = attach_.state();
  response->set_pid(static_cast<std::uint32_t>(getpid()));
  response->set_uptime_s(SecondsSince(start_));
  response->set_version(HOLDFAST_VERSION);
  if (state.peer) FillEngine(*state.peer, layouts_, response->mutable_engine());
  response->set_attaches_total(state.attaches);
  response->set_refused_attaches_total(state.AllRefusals());
  response->set_staging_bytes(config_.staging_bytes());
  response->set_staging_slots(config_.staging_slots());
  response->set_draining(state.draining);
  FillTierStatus(tiers_, response);
  return grpc::Status::OK;
}

grpc::Status AdminService::Metrics(grpc::ServerContext*,
                                   const v1::CacheMetricsRequest*,
                                   v1::CacheMetrics* response) {
  v1::CacheStats stats;
  FillStats(tiers_, &stats);
  response->set_prometheus_text(
      MetricsText(attach_.state(), config_.staging_bytes(), stats));
  return grpc::Status::OK;
}

grpc::Status AdminService::Stats(grpc::ServerContext*,
                                 const v1::CacheStatsRequest*,
                                 v1::CacheStats* response) {
  FillStats(tiers_, response);
  return grpc::Status::OK;
}

grpc::Status AdminService::List(grpc::ServerContext*,
                                const v1::CacheListRequest* request,
                                v1::CacheListResponse* response) {
  const bool of_store = request->what() == v1::CacheListRequest::STORE;
  if (of_store && tiers_.store == nullptr) {
    return ToGrpcStatus(
        absl::FailedPreconditionError("the state store is off"));
  }
  if (!of_store && tiers_.disk == nullptr) return NoDisk(tiers_);
  FillList(tiers_, *request, response);
  return grpc::Status::OK;
}

grpc::Status AdminService::Show(grpc::ServerContext*,
                                const v1::CacheShowRequest* request,
                                v1::CacheShowResponse* response) {
  if (tiers_.disk == nullptr) return NoDisk(tiers_);
  const auto key = DigestOf(request->key());
  if (!key) return BadKey();
  const auto info = tiers_.disk->store().ShowManifest(*key);
  if (!info) {
    return ToGrpcStatus(
        absl::NotFoundError("no anchor or session " + ToHex(*key)));
  }
  FillEntry(*info, response->mutable_entry());
  return grpc::Status::OK;
}

grpc::Status AdminService::Verify(
    grpc::ServerContext* context, const v1::CacheVerifyRequest* request,
    grpc::ServerWriter<v1::CacheVerifyProgress>* writer) {
  if (tiers_.disk == nullptr) return NoDisk(tiers_);
  std::vector<FileKey> keys;
  for (const std::string& bytes : request->keys()) {
    const auto key = DigestOf(bytes);
    if (!key) return BadKey();
    keys.push_back(*key);
  }
  ChunkStore& store = tiers_.disk->store();
  if (keys.empty()) {
    for (const ManifestInfo& info : store.ListManifests()) {
      keys.push_back(info.file_key);
    }
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
    const absl::Status status = store.Verify(keys[i], request->delete_bad(),
                                             steady_clock::now() + kVerifyOne);
    v1::CacheVerifyProgress progress;
    progress.set_key(BytesOf(keys[i]));
    progress.set_done(i + 1);
    progress.set_total(keys.size());
    if (!status.ok()) progress.set_error(std::string(status.message()));
    if (!writer->Write(progress)) return grpc::Status::CANCELLED;
  }
  return grpc::Status::OK;
}

grpc::Status AdminService::Evict(grpc::ServerContext*,
                                 const v1::CacheEvictRequest* request,
                                 v1::CacheEvictResponse* response) {
  if (tiers_.disk == nullptr) return NoDisk(tiers_);
  ChunkStore& store = tiers_.disk->store();
  absl::StatusOr<std::uint64_t> gone = absl::InvalidArgumentError(
      "evict: needs keys, or a tier on disk with an age or bytes");
  if (request->keys_size() > 0) {
    std::vector<FileKey> keys;
    for (const std::string& bytes : request->keys()) {
      const auto key = DigestOf(bytes);
      if (!key) return BadKey();
      keys.push_back(*key);
    }
    gone = store.Evict(keys);
  } else if (const auto kind = KindOf(request->tier())) {
    if (request->bytes() > 0) {
      gone = store.EvictBytes(*kind, request->bytes());
    } else if (request->unused_for_s() > 0) {
      gone = store.EvictUnusedFor(*kind, request->unused_for_s());
    }
  }
  if (!gone.ok()) return ToGrpcStatus(gone.status());
  spdlog::info("evicted by an operator entries={}", *gone);
  response->set_entries(*gone);
  return grpc::Status::OK;
}

grpc::Status AdminService::Clear(grpc::ServerContext*,
                                 const v1::CacheClearRequest* request,
                                 v1::CacheClearResponse* response) {
  if (request->tier() == v1::TIER_STORE) {
    response->set_entries(tiers_.store != nullptr ? tiers_.store->Clear() : 0);
    return grpc::Status::OK;
  }
  if (tiers_.disk == nullptr) return NoDisk(tiers_);
  const auto kind = KindOf(request->tier());
  if (!kind) {
    return ToGrpcStatus(absl::InvalidArgumentError("clear: no such tier"));
  }
  const auto gone = tiers_.disk->store().Clear(*kind, request->foreign_only());
  if (!gone.ok()) return ToGrpcStatus(gone.status());
  spdlog::info("cleared by an operator tier={} foreign_only={} entries={}",
               *kind == FileKind::kSession ? "spill" : "disk",
               request->foreign_only(), *gone);
  response->set_entries(*gone);
  return grpc::Status::OK;
}

grpc::Status AdminService::Pin(grpc::ServerContext*,
                               const v1::CachePinRequest* request,
                               v1::CachePinResponse*) {
  if (tiers_.disk == nullptr) return NoDisk(tiers_);
  const auto key = DigestOf(request->key());
  if (!key) return BadKey();
  return ToGrpcStatus(tiers_.disk->store().SetPinned(*key, request->pinned()));
}

grpc::Status AdminService::SetDisk(grpc::ServerContext*,
                                   const v1::CacheSetDiskRequest* request,
                                   v1::CacheSetDiskResponse* response) {
  if (tiers_.disk == nullptr) return NoDisk(tiers_);
  ChunkStore& store = tiers_.disk->store();
  const auto limits =
      NewLimits(store.limits(), *request, config_.allow_small_free_space);
  if (!limits.ok()) return ToGrpcStatus(limits.status());
  if (auto s = store.SetLimits(*limits); !s.ok()) return ToGrpcStatus(s);
  response->set_disk_budget_bytes(limits->disk_budget_bytes);
  response->set_spill_budget_bytes(limits->spill_budget_bytes);
  response->set_ttl_s(limits->ttl_s);
  response->set_free_floor_bytes(limits->free_floor_bytes);
  return grpc::Status::OK;
}

grpc::Status AdminService::RebuildIndex(
    grpc::ServerContext*, const v1::CacheRebuildIndexRequest*,
    v1::CacheRebuildIndexResponse* response) {
  if (tiers_.disk == nullptr) return NoDisk(tiers_);
  const auto report = tiers_.disk->store().RebuildIndex();
  if (!report.ok()) return ToGrpcStatus(report.status());
  if (report->left_for_later > 0) {
    return ToGrpcStatus(absl::UnavailableError(
        fmt::format("{} files could not be read: they are tried again every "
                    "minute, {} are adopted",
                    report->left_for_later, report->adopted)));
  }
  response->set_adopted_files(report->adopted);
  response->set_corrupt_files(report->corrupt_files);
  response->set_incomplete_entries(report->incomplete_manifests);
  response->set_unreferenced_chunks(report->unreferenced_chunks);
  response->set_ms(report->ms);
  return grpc::Status::OK;
}

}  // namespace holdfast::cachesvc
