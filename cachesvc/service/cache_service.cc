#include "cachesvc/service/cache_service.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "fmt/format.h"
#include "shared/grpc_status.h"
#include "spdlog/spdlog.h"

namespace holdfast::cachesvc {
namespace {

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
                                .parts = 1});
  }
  for (const v1::Section& section : layout.sections())
    out.layout.sections.push_back(
        {.name = section.name(), .bytes = section.bytes()});
  out.layout.grid_tokens = layout.grid_tokens();
  out.block_tokens = layout.block_tokens();
  out.block_bytes = layout.block_bytes();
  out.block_count = layout.block_count();
  return out;
}

absl::Status Announce(const attach::AttachServer& server, LayoutBook& layouts,
                      const v1::AnnounceLayoutRequest& request) {
  const auto peer = PeerOfEpoch(server, request.epoch());
  if (!peer.ok()) return peer.status();
  const std::string attached(peer->fingerprint.begin(),
                             peer->fingerprint.end());
  if (request.fingerprint() != attached) {
    return absl::InvalidArgumentError(fmt::format(
        "layout: fingerprint of {} bytes is not the one that engine pid {} "
        "attached with",
        request.fingerprint().size(), peer->pid));
  }
  AnnouncedLayout layout = FromProto(request);
  if (absl::Status status = CheckLayout(layout, peer->pool_bytes);
      !status.ok()) {
    return status;
  }
  spdlog::info("layout announced pid={} model=\"{}\" blocks={} block_bytes={}",
               peer->pid, layout.model_name, layout.block_count,
               layout.block_bytes);
  layouts.Put(request.epoch(), std::move(layout));
  return absl::OkStatus();
}

}  // namespace

grpc::Status CacheService::AnnounceLayout(
    grpc::ServerContext*, const v1::AnnounceLayoutRequest* request,
    v1::AnnounceLayoutResponse*) {
  const absl::Status status = Announce(attach_, layouts_, *request);
  if (!status.ok()) spdlog::warn("announce layout: {}", status.ToString());
  return ToGrpcStatus(status);
}

}  // namespace holdfast::cachesvc
