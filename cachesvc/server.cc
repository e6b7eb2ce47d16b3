#include "cachesvc/server.h"

#include <algorithm>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "shared/attach/paths.h"
#include "shared/daemon.h"
#include "shared/deadlines.h"
#include "spdlog/spdlog.h"

namespace holdfast::cachesvc {
namespace {

// Control calls of a few clients; the bound keeps a flood of them small. A
// store and a verification each hold one for as long as they take.
constexpr int kMaxGrpcThreads = 16;
// The key ids of a prompt of a million tokens take 4 or 5 MB.
constexpr int kMaxMessageBytes = 64 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    Config config, std::unique_ptr<DeviceMapper> mapper) {
  if (absl::Status status = config.Validate(); !status.ok()) return status;
  auto staging = MemfdArena::Create("holdfast-staging", config.staging_bytes(),
                                    ArenaWriters::kEveryHolder);
  if (!staging.ok()) return staging.status();
  std::unique_ptr<Server> server(
      new Server(std::move(config), *std::move(staging), std::move(mapper)));
  server->OpenDisk();
  attach::AttachServerOptions options;
  options.socket_path = attach::AttachSocketPath(server->config_.run_dir);
  options.staging = &server->staging_;
  options.staging_slots = server->config_.staging_slots();
  options.on_detach = [raw = server.get()](std::uint64_t epoch) {
    raw->devices_.Drop(epoch);
    // Nobody takes their pieces any more: what they hold is let go.
    raw->tiers_.restores.Clear();
  };
  auto attach = attach::AttachServer::Start(std::move(options));
  if (!attach.ok()) return attach.status();
  server->attach_ = *std::move(attach);
  if (absl::Status status = server->StartGrpc(); !status.ok()) return status;
  return server;
}

Server::Server(Config config, MemfdArena staging,
               std::unique_ptr<DeviceMapper> mapper)
    : config_(std::move(config)),
      staging_(std::move(staging)),
      slots_({staging_.data(), staging_.bytes()}, config_.staging_slots()),
      devices_(std::move(mapper)),
      tiers_(slots_) {
  if (config_.store_bytes() == 0) return;
  tiers_.store_budget_bytes = config_.store_bytes();
  tiers_.store_entry_bytes = config_.store_entry_bytes();
  tiers_.store = std::make_unique<StateStore>(
      StateStoreOptions{.budget_bytes = tiers_.store_budget_bytes,
                        .entry_bytes = tiers_.store_entry_bytes});
}

Server::~Server() { Stop(); }

// Before READY: the sweep is bounded in time.
void Server::OpenDisk() {
  const auto options = config_.disk();
  if (!options) {
    tiers_.disk_detail =
        config_.cache_dir.empty() ? "no --cache-dir" : "switched off";
    return;
  }
  auto disk = DiskTier::Open(*options, {staging_.data(), staging_.bytes()});
  if (disk.ok()) {
    tiers_.disk = *std::move(disk);
    return;
  }
  tiers_.disk_detail = std::string(disk.status().message());
  spdlog::error("nothing is kept on disk: {}", tiers_.disk_detail);
}

absl::Status Server::StartGrpc() {
  const std::string path = attach::CacheSocketPath(config_.run_dir);
  absl::StatusOr<std::string> target = UnixTarget(path);
  if (!target.ok()) return target.status();
  cache_ = std::make_unique<CacheService>(*attach_, layouts_, devices_, tiers_);
  admin_ = std::make_unique<AdminService>(config_, *attach_, layouts_, tiers_);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(
      grpc::ResourceQuota("cachesvc").SetMaxThreads(kMaxGrpcThreads));
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  int bound = 0;
  builder.AddListeningPort(*target, grpc::InsecureServerCredentials(), &bound);
  builder.RegisterService(cache_.get());
  builder.RegisterService(admin_.get());
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr || bound == 0)
    return absl::UnavailableError(fmt::format("listen on {}", path));
  return absl::OkStatus();
}

std::uint64_t Server::pool_bytes() const {
  const auto peer = state().peer;
  if (!peer) return 0;
  const auto layout = layouts_.Get(peer->epoch);
  // It comes from another process.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  return peer->pool_bytes +
         std::min(layout ? layout->device_pool_bytes : 0, kMost);
}

void Server::BeginDrain() {
  attach_->RefuseNew();
  if (auto* health = grpc_->GetHealthCheckService())
    health->SetServingStatus(false);
}

void Server::Stop() {
  if (attach_ != nullptr) attach_->Stop();
  if (grpc_ != nullptr) {
    grpc_->Shutdown(std::chrono::system_clock::now() + deadlines::kControl);
    grpc_.reset();
  }
}

}  // namespace holdfast::cachesvc
