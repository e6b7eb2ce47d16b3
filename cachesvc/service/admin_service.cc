#include "cachesvc/service/admin_service.h"

#include <unistd.h>

#include "cachesvc/service/metrics_text.h"

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
    out->set_model_name(layout->model_name);
    FillLayout(*layout, out->mutable_layout());
  }
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
  for (const char* name : {"store", "disk", "spill"}) {
    v1::TierStatus* tier = response->add_tiers();
    tier->set_name(name);
    tier->set_available(false);
    tier->set_detail("not built yet");
  }
  return grpc::Status::OK;
}

grpc::Status AdminService::Metrics(grpc::ServerContext*,
                                   const v1::CacheMetricsRequest*,
                                   v1::CacheMetrics* response) {
  response->set_prometheus_text(
      MetricsText(attach_.state(), config_.staging_bytes()));
  return grpc::Status::OK;
}

}  // namespace holdfast::cachesvc
