#include "cachesvc/service/cache_service.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cachesvc/lease/leased_snapshot.h"
#include "cachesvc/restore/snapshot_source.h"
#include "cachesvc/service/tier_calls.h"
#include "fmt/format.h"
#include "shared/deadlines.h"
#include "shared/grpc_status.h"
#include "spdlog/spdlog.h"

namespace holdfast::cachesvc {
namespace {

using std::chrono::steady_clock;

// The attached engine, when the call is of its epoch.
absl::StatusOr<attach::AttachedPeer> PeerOfEpoch(
    const attach::AttachServer& server, std::uint64_t epoch) {
  const auto peer = server.state().peer;
  if (!peer) {
    return absl::FailedPreconditionError(
        fmt::format("epoch {:016x}: no engine is attached", epoch));
  }
  if (peer->epoch != epoch) {
    return absl::FailedPreconditionError(
        fmt::format("epoch {:016x} is not that of the attached engine pid {}",
                    epoch, peer->pid));
  }
  return *peer;
}

AnnouncedLayout FromProto(const v1::AnnounceLayoutRequest& request) {
  AnnouncedLayout out;
  out.model_name = request.model_name();
  const v1::CacheLayout& layout = request.layout();
  for (const v1::View& view : layout.views()) {
    out.layout.views.push_back({.name = view.name(),
                                .bytes_per_token = view.bytes_per_token(),
                                .parts = std::max(view.parts(), 1u)});
  }
  for (const v1::Section& section : layout.sections())
    out.layout.sections.push_back(
        {.name = section.name(), .bytes = section.bytes()});
  out.layout.grid_tokens = layout.grid_tokens();
  out.block_tokens = layout.block_tokens();
  out.block_bytes = layout.block_bytes();
  out.block_count = layout.block_count();
  out.lease_table_offset = request.lease_table_offset_bytes();
  out.lease_slots = request.lease_slots();
  return out;
}

absl::StatusOr<DevicePool::Options> FromProto(const v1::DevicePool& proto,
                                              const AnnouncedLayout& layout,
                                              std::uint32_t engine_pid) {
  DevicePool::Options options;
  options.pool.block_count = proto.block_count();
  options.pool.check_offset = proto.check_offset_bytes();
  options.block_bytes = layout.block_bytes;
  options.piece_blocks = layout.layout.grid_tokens / layout.block_tokens;
  options.engine_pid = engine_pid;
  DeviceMemoryHandle& memory = options.pool.memory;
  if (proto.ipc_handle().size() != memory.ipc.size() ||
      proto.device_uuid().size() != memory.device_uuid.size()) {
    return absl::InvalidArgumentError(
        fmt::format("a handle of {} bytes, a UUID of {}",
                    proto.ipc_handle().size(), proto.device_uuid().size()));
  }
  std::ranges::copy(proto.ipc_handle(), memory.ipc.begin());
  std::ranges::copy(proto.device_uuid(), memory.device_uuid.begin());
  memory.bytes = proto.bytes();
  memory.exporter_pid = proto.exporter_pid();
  memory.exporter_start = proto.exporter_start();
  return options;
}

// Says in the response whether it is mapped, and why not.
void MapDevice(DevicePools& devices, const attach::AttachedPeer& peer,
               const v1::DevicePool& proto, AnnouncedLayout& layout,
               v1::AnnounceLayoutResponse& response) {
  absl::StatusOr<DeviceCheck> check;
  if (const auto options = FromProto(proto, layout, peer.pid); options.ok()) {
    check = devices.Map(peer.epoch, *options);
  } else {
    check = options.status();
  }
  if (!check.ok()) {
    response.set_device_refused(std::string(check.status().message()));
    spdlog::warn("device pool of engine pid {} refused: {}", peer.pid,
                 response.device_refused());
    return;
  }
  layout.device_block_count = proto.block_count();
  response.set_device_check(check->data(), check->size());
}

// The fingerprint of the attached engine; its layout, checked.
absl::StatusOr<AnnouncedLayout> CheckAnnounced(
    const attach::AttachedPeer& peer,
    const v1::AnnounceLayoutRequest& request) {
  const std::string attached(peer.fingerprint.begin(), peer.fingerprint.end());
  if (request.fingerprint() != attached) {
    return absl::InvalidArgumentError(fmt::format(
        "layout: fingerprint of {} bytes is not the one that engine pid {} "
        "attached with",
        request.fingerprint().size(), peer.pid));
  }
  AnnouncedLayout layout = FromProto(request);
  if (absl::Status status = CheckLayout(layout, peer.pool_bytes);
      !status.ok()) {
    return status;
  }
  return layout;
}

std::span<const std::uint64_t> SpanOf(
    const google::protobuf::RepeatedField<std::uint64_t>& ids) {
  return {ids.data(), static_cast<std::size_t>(ids.size())};
}

double MillisecondsSince(steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(steady_clock::now() - start)
      .count();
}

absl::StatusOr<std::unique_ptr<PieceSource>> OpenSource(
    Tiers& tiers, const v1::TierCandidate& candidate,
    const RestoreRequest& request, bool touch, Deadline deadline) {
  if (candidate.tier() == v1::TIER_STORE) {
    auto snapshot =
        tiers.store == nullptr
            ? nullptr
            : tiers.store->Take(EntryOfKey(request.manifest), request.position,
                                request.key_ids, touch);
    if (snapshot == nullptr) return absl::NotFoundError("it is evicted");
    return SnapshotSource::Make(std::move(snapshot), request.position);
  }
  const auto kind = KindOf(candidate.tier());
  if (!kind || tiers.disk == nullptr) {
    return absl::NotFoundError("no such tier");
  }
  return tiers.disk->OpenRestore(*kind, request, deadline);
}

// Told when the last piece was handed over.
std::function<void()> CountHit(Tiers& tiers,
                               const v1::RestoreBeginRequest& request,
                               const FileKey& key,
                               std::shared_ptr<std::uint64_t> bytes) {
  return
      [&tiers, bytes, key, tier = request.candidate().tier(),
       touch = request.touch(),
       tokens = request.candidate().position_tokens() - request.have_tokens(),
       start = steady_clock::now()] {
        const double ms = MillisecondsSince(start);
        if (tier == v1::TIER_STORE) {
          tiers.store_use.Hit(tokens, *bytes, ms);
        } else if (const auto kind = KindOf(tier)) {
          tiers.disk->NoteHit(*kind, key, touch, tokens, *bytes, ms);
        }
      };
}

// The longest line whose state is worth a snapshot; 0: none, or it has one.
std::uint32_t StoreLine(const StateStore& store, const CacheLayout& layout,
                        const LookupRequest& prompt, std::uint64_t resumed_at) {
  const std::uint64_t line =
      store.LongestLine(layout, prompt.block_keys.size() * kBlockTokens);
  if (line <= resumed_at) return 0;
  for (const StoreCandidate& candidate : store.Lookup(prompt)) {
    if (candidate.position == line) return 0;
  }
  return static_cast<std::uint32_t>(line);
}

// A state of provenance `session` is for the conversation that kept it.
template <typename AnyCandidate>
void Offer(const AnyCandidate& candidate, bool of_session,
           const std::optional<Sha256Digest>& asks,
           v1::LookupResponse* response) {
  const bool own = of_session && asks == candidate.session_id;
  if (candidate.provenance == Provenance::kSession && !own) return;
  v1::TierCandidate* added = response->add_candidates();
  ToProto(candidate, added);
  added->set_own_session(own);
}

// In the state store.
StoreAnswer KeepSnapshot(Tiers& tiers, const LeasedStore& leased) {
  if (tiers.store == nullptr) {
    return {.reason = "no_tier", .detail = "the state store is off"};
  }
  const auto start = steady_clock::now();
  const auto bytes = StoreSnapshot(*tiers.store, leased);
  if (bytes.ok()) {
    tiers.store_use.Stored(*bytes, MillisecondsSince(start));
    return {.outcome = StoreAnswer::Outcome::kStored,
            .bytes_written = *bytes,
            .end_position = leased.key_ids.size()};
  }
  StoreAnswer answer{.reason = "invalid",
                     .detail = std::string(bytes.status().message())};
  if (absl::IsAborted(bytes.status())) answer.reason = "lease_lost";
  if (absl::IsResourceExhausted(bytes.status())) answer.reason = "budget";
  return answer;
}

StoreAnswer Keep(Tiers& tiers, v1::Tier tier, LeasedStore leased) {
  if (tier == v1::TIER_STORE) return KeepSnapshot(tiers, leased);
  if (tiers.disk != nullptr) return tiers.disk->Store(std::move(leased));
  return {.reason = "no_tier", .detail = "nothing is kept on disk"};
}

}  // namespace

grpc::Status CacheService::AnnounceLayout(
    grpc::ServerContext*, const v1::AnnounceLayoutRequest* request,
    v1::AnnounceLayoutResponse* response) {
  const absl::Status status = Announce(*request, *response);
  if (!status.ok()) spdlog::warn("announce layout: {}", status.ToString());
  return ToGrpcStatus(status);
}

absl::Status CacheService::Announce(const v1::AnnounceLayoutRequest& request,
                                    v1::AnnounceLayoutResponse& response) {
  const auto peer = PeerOfEpoch(attach_, request.epoch());
  if (!peer.ok()) return peer.status();
  auto layout = CheckAnnounced(*peer, request);
  if (!layout.ok()) return layout.status();
  spdlog::info("layout announced pid={} model=\"{}\" blocks={} block_bytes={}",
               peer->pid, layout->model_name, layout->block_count,
               layout->block_bytes);
  layout->device_pool_bytes = std::max<std::uint64_t>(
      request.device_pool_bytes(), request.device_pool().bytes());
  if (request.has_device_pool()) {
    {
      const auto pass = EnterAnnounce(request.epoch());
      if (!pass.ok()) return pass.status();
      devices_.Begin(request.epoch());
    }
    MapDevice(devices_, *peer, request.device_pool(), *layout, response);
  }
  const auto pass = EnterAnnounce(request.epoch());
  if (!pass.ok()) {
    // Detached meanwhile: nobody else would unmap it.
    devices_.Drop(request.epoch());
    return pass.status();
  }
  layouts_.Put(request.epoch(), *std::move(layout));
  // Slots and restores end with an attach.
  tiers_.restores.Clear(request.epoch());
  if (tiers_.disk != nullptr) {
    tiers_.disk->Attached(peer->fingerprint, peer->pid);
  }
  if (tiers_.store != nullptr) tiers_.store->DropForeign(peer->fingerprint);
  return absl::OkStatus();
}

absl::StatusOr<Gate::Pass> CacheService::EnterAnnounce(std::uint64_t epoch) {
  auto pass = announce_gate_.Enter(steady_clock::now() + deadlines::kAttach);
  if (!pass.ok()) return pass.status();
  if (const auto peer = PeerOfEpoch(attach_, epoch); !peer.ok()) {
    return peer.status();
  }
  return pass;
}

grpc::Status CacheService::Lookup(grpc::ServerContext*,
                                  const v1::LookupRequest* request,
                                  v1::LookupResponse* response) {
  const auto peer = PeerOfEpoch(attach_, request->epoch());
  if (!peer.ok()) return ToGrpcStatus(peer.status());
  const auto prompt = FromProto(request->prompt());
  if (!prompt.ok()) return ToGrpcStatus(prompt.status());
  tiers_.restores.End(SpanOf(request->ended_restores()));
  CostBook& costs = tiers_.costs();
  if (request->has_measured())
    costs.Put(peer->fingerprint, FromProto(request->measured()));
  ToProto(costs.Get(peer->fingerprint), response->mutable_remembered());
  const LookupRequest lookup{.fingerprint = peer->fingerprint,
                             .root = prompt->root,
                             .block_keys = prompt->block_keys};
  std::optional<Sha256Digest> asks;
  if (!request->session_key().empty()) {
    asks = SessionId(prompt->root, request->session_key());
  }
  if (tiers_.store != nullptr) {
    tiers_.store_use.Lookup();
    for (const StoreCandidate& candidate : tiers_.store->Lookup(lookup)) {
      Offer(candidate, candidate.kind == EntryKind::kSession, asks, response);
    }
    response->set_store_entry_bytes(tiers_.store_entry_bytes);
  }
  if (tiers_.disk == nullptr) return grpc::Status::OK;
  const DiskLookup found = tiers_.disk->Lookup(lookup);
  for (const Candidate& candidate : found.candidates) {
    Offer(candidate, candidate.kind == FileKind::kSession, asks, response);
  }
  response->set_foreign(found.foreign);
  if (tiers_.disk->options().disk_cache) {
    response->set_minimum_tokens(static_cast<std::uint32_t>(
        tiers_.disk->options().admission.min_tokens));
  }
  return grpc::Status::OK;
}

grpc::Status CacheService::Admit(grpc::ServerContext*,
                                 const v1::AdmitRequest* request,
                                 v1::AdmitResponse* response) {
  const auto peer = PeerOfEpoch(attach_, request->epoch());
  if (!peer.ok()) return ToGrpcStatus(peer.status());
  const auto prompt = FromProto(request->prompt());
  if (!prompt.ok()) return ToGrpcStatus(prompt.status());
  const auto layout = layouts_.Get(request->epoch());
  if (!layout) return grpc::Status::OK;
  if (tiers_.store != nullptr) {
    response->set_store_line_tokens(
        StoreLine(*tiers_.store, layout->layout,
                  {.fingerprint = peer->fingerprint,
                   .root = prompt->root,
                   .block_keys = prompt->block_keys},
                  request->resumed_at_tokens()));
  }
  if (tiers_.disk == nullptr) return grpc::Status::OK;
  for (const std::uint64_t line : tiers_.disk->Admit({.root = prompt->root,
                                  .block_keys = prompt->block_keys,
                                  .grid_tokens = layout->layout.grid_tokens,
                                  .resumed_at = request->resumed_at_tokens(),
                                  .session_key = request->session_key(),
                                  .head = request->head_tokens()})) {
    response->add_anchor_positions_tokens(static_cast<std::uint32_t>(line));
  }
  return grpc::Status::OK;
}

grpc::Status CacheService::RestoreBegin(grpc::ServerContext*,
                                        const v1::RestoreBeginRequest* request,
                                        v1::RestoreBeginResponse* response) {
  const auto peer = PeerOfEpoch(attach_, request->epoch());
  if (!peer.ok()) return ToGrpcStatus(peer.status());
  const v1::TierCandidate& candidate = request->candidate();
  const auto key = DigestOf(candidate.key());
  if (!key || candidate.position_tokens() == 0 ||
      request->have_tokens() > candidate.position_tokens()) {
    return ToGrpcStatus(absl::InvalidArgumentError("restore: its candidate"));
  }
  const std::vector<KeyId> ids(request->key_ids().begin(),
                               request->key_ids().end());
  const Deadline deadline =
      steady_clock::now() + std::chrono::milliseconds(request->deadline_ms());
  auto source = OpenSource(tiers_, candidate,
                           {.fingerprint = peer->fingerprint,
                            .manifest = *key,
                            .position = candidate.position_tokens(),
                            .key_ids = ids},
                           request->touch(), deadline);
  if (!source.ok()) {
    spdlog::warn("restore {}: {}", ToHex(*key), source.status().ToString());
    return ToGrpcStatus(source.status());
  }
  const auto told = std::make_shared<std::uint64_t>(0);
  const auto bytes = tiers_.restores.Begin(
      *std::move(source), {.attach = request->epoch(),
                           .id = request->restore_id(),
                           .position = candidate.position_tokens(),
                           .have_rows = request->have_tokens(),
                           .deadline = deadline,
                           .on_done = CountHit(tiers_, *request, *key, told)});
  if (!bytes.ok()) return ToGrpcStatus(bytes.status());
  *told = *bytes;
  response->set_bytes(*bytes);
  return grpc::Status::OK;
}

grpc::Status CacheService::RestoreNext(grpc::ServerContext*,
                                       const v1::RestoreNextRequest* request,
                                       v1::RestoreNextResponse* response) {
  const auto peer = PeerOfEpoch(attach_, request->epoch());
  if (!peer.ok()) return ToGrpcStatus(peer.status());
  std::vector<ReturnedSlot> returned;
  for (const v1::SlotRef& slot : request->returned()) {
    returned.push_back({slot.slot(), slot.generation()});
  }
  const auto handed = tiers_.restores.Next(request->restore_id(), returned);
  if (!handed.ok()) {
    spdlog::warn("restore {}: {}", request->restore_id(),
                 handed.status().ToString());
    return ToGrpcStatus(handed.status());
  }
  ToProto(*handed, response);
  return grpc::Status::OK;
}

grpc::Status CacheService::RestoreEnd(grpc::ServerContext*,
                                      const v1::RestoreEndRequest* request,
                                      v1::RestoreEndResponse*) {
  const auto peer = PeerOfEpoch(attach_, request->epoch());
  if (!peer.ok()) return ToGrpcStatus(peer.status());
  tiers_.restores.End(SpanOf(request->restore_ids()));
  return grpc::Status::OK;
}

grpc::Status CacheService::FreeStore(grpc::ServerContext*,
                                     const v1::FreeStoreRequest* request,
                                     v1::FreeStoreResponse* response) {
  const auto peer = PeerOfEpoch(attach_, request->epoch());
  if (!peer.ok()) return ToGrpcStatus(peer.status());
  if (tiers_.store == nullptr) return grpc::Status::OK;
  response->set_freed_bytes(tiers_.store->Free(request->bytes()));
  spdlog::info("store given back wanted_bytes={} freed_bytes={}",
               request->bytes(), response->freed_bytes());
  return grpc::Status::OK;
}

grpc::Status CacheService::GetRecord(grpc::ServerContext* context,
                                     const v1::GetRecordRequest* request,
                                     v1::GetRecordResponse* response) {
  const auto peer = PeerOfEpoch(attach_, request->epoch());
  if (!peer.ok()) return ToGrpcStatus(peer.status());
  const auto root = DigestOf(request->root());
  if (!root) {
    return ToGrpcStatus(absl::InvalidArgumentError(
        fmt::format("get record: a root of {} bytes", request->root().size())));
  }
  const Sha256Digest id = SessionId(*root, request->session_key());
  if (tiers_.disk != nullptr && tiers_.disk->options().session_spill) {
    // As long as the engine waits.
    const auto left = context->deadline() - std::chrono::system_clock::now();
    auto record = tiers_.disk->store().SessionRecord(
        id, steady_clock::now() +
                std::min<steady_clock::duration>(left, deadlines::kControl));
    if (record.ok()) response->add_records(*std::move(record));
  }
  if (tiers_.store != nullptr) {
    auto record = tiers_.store->SessionRecord(id);
    if (record) response->add_records(*std::move(record));
  }
  return grpc::Status::OK;
}

grpc::Status CacheService::PutRecord(grpc::ServerContext*,
                                     const v1::PutRecordRequest* request,
                                     v1::PutRecordResponse*) {
  const auto peer = PeerOfEpoch(attach_, request->epoch());
  if (!peer.ok()) return ToGrpcStatus(peer.status());
  auto record = FromProto(*request);
  if (!record.ok()) return ToGrpcStatus(record.status());
  if (tiers_.store != nullptr) tiers_.store->PutRecord(*std::move(record));
  return grpc::Status::OK;
}

grpc::Status CacheService::Store(grpc::ServerContext*,
                                 const v1::StoreRequest* request,
                                 v1::StoreResponse* response) {
  const auto peer = PeerOfEpoch(attach_, request->epoch());
  if (!peer.ok()) return ToGrpcStatus(peer.status());
  auto store = FromProto(*request);
  if (!store.ok()) return ToGrpcStatus(store.status());
  const auto layout = layouts_.Get(request->epoch());
  store->pool = attach_.pool(request->epoch());
  if (!layout || store->pool == nullptr) {
    return ToGrpcStatus(absl::FailedPreconditionError(
        "store: no layout was announced, or the engine has gone"));
  }
  store->device = devices_.Get(request->epoch());
  store->fingerprint = peer->fingerprint;
  store->layout = *layout;
  const std::size_t rows = store->key_ids.size();
  const auto start = steady_clock::now();
  const std::shared_ptr<DevicePool> device =
      RowsOnDevice(*store) ? store->device : nullptr;
  StoreAnswer answer = Keep(tiers_, request->tier(), *std::move(store));
  if (device != nullptr && !device->failure().empty() &&
      answer.outcome == StoreAnswer::Outcome::kRefused) {
    answer.reason = "device";
    answer.detail = device->failure();
  }
  spdlog::info(
      "store tier={} rows={} outcome={} reason={} bytes={} ms={} detail=\"{}\"",
      v1::Tier_Name(request->tier()), rows, static_cast<int>(answer.outcome),
      answer.reason, answer.bytes_written,
      static_cast<int>(MillisecondsSince(start)), answer.detail);
  ToProto(answer, response);
  return grpc::Status::OK;
}

grpc::Status CacheService::Drained(grpc::ServerContext*,
                                   const v1::DrainedRequest* request,
                                   v1::DrainedResponse* response) {
  const auto peer = PeerOfEpoch(attach_, request->epoch());
  if (!peer.ok()) return ToGrpcStatus(peer.status());
  devices_.Unmap(request->epoch());
  if (tiers_.disk == nullptr) return grpc::Status::OK;
  const auto residents = tiers_.disk->Drained(peer->fingerprint);
  if (!residents.ok()) return ToGrpcStatus(residents.status());
  response->set_residents(static_cast<std::uint32_t>(*residents));
  spdlog::info("engine pid={} drained residents={}", peer->pid, *residents);
  return grpc::Status::OK;
}

grpc::Status CacheService::Residents(grpc::ServerContext* context,
                                     const v1::ResidentsRequest* request,
                                     v1::ResidentsResponse* response) {
  const auto peer = PeerOfEpoch(attach_, request->epoch());
  if (!peer.ok()) return ToGrpcStatus(peer.status());
  if (tiers_.disk == nullptr) return grpc::Status::OK;
  // Told once: not to a client that will have given up.
  const auto left = std::clamp<std::chrono::system_clock::duration>(
      context->deadline() - std::chrono::system_clock::now(),
      std::chrono::seconds(0), deadlines::kControl);
  const auto residents = tiers_.disk->TakeResidents(
      peer->fingerprint, peer->pid, steady_clock::now() + left / 2);
  if (absl::IsDeadlineExceeded(residents.status())) {
    // Another code than that of a service which does not answer.
    return ToGrpcStatus(absl::UnavailableError(fmt::format(
        "ask again: {}", std::string(residents.status().message()))));
  }
  if (!residents.ok()) return ToGrpcStatus(residents.status());
  for (const StoredResident& resident : *residents) {
    ToProto(resident, response->add_residents());
  }
  return grpc::Status::OK;
}

}  // namespace holdfast::cachesvc
