// The cache service as one object: staging memory, attach socket, gRPC.
#ifndef HOLDFAST_CACHESVC_SERVER_H_
#define HOLDFAST_CACHESVC_SERVER_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cachesvc/attach/announced_layout.h"
#include "cachesvc/config.h"
#include "cachesvc/device/device_pools.h"
#include "cachesvc/restore/staging_slots.h"
#include "cachesvc/service/admin_service.h"
#include "cachesvc/service/cache_service.h"
#include "cachesvc/service/tiers.h"
#include "grpcpp/grpcpp.h"
#include "shared/arena/memfd_arena.h"
#include "shared/attach/attach_server.h"

namespace holdfast::cachesvc {

// Serves from Start() on. A cache folder that cannot be used leaves the service
// without it, with the reason in its status. Thread-safe but for Stop().
class Server {
 public:
  // The run directory exists, and the caller holds the lock that says that no
  // other process serves its sockets.
  // No mapper: pools on devices are refused.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      Config config, std::unique_ptr<DeviceMapper> mapper = nullptr);
  ~Server();

  attach::AttachServerState state() const { return attach_->state(); }
  // True when the attach thread goes round within `deadline`.
  bool Responds(std::chrono::milliseconds deadline) {
    return attach_->Responds(deadline);
  }

  // First step of a stop: health says NOT_SERVING, new engines are refused, the
  // attached one is served on.
  void BeginDrain();
  // What the attached engine's planned stop may have to write, wherever its
  // rows lie.
  std::uint64_t pool_bytes() const;
  // Waits at most `deadline` for the engine to detach; true when none is.
  bool WaitDetached(std::chrono::milliseconds deadline) const {
    return attach_->WaitDetached(deadline);
  }
  // Detaches an engine that is still there and ends every call. Idempotent.
  void Stop();

 private:
  Server(Config config, MemfdArena staging,
         std::unique_ptr<DeviceMapper> mapper);
  void OpenDisk();
  absl::Status StartGrpc();

  const Config config_;
  const MemfdArena staging_;
  StagingSlots slots_;
  DevicePools devices_;
  Tiers tiers_;
  LayoutBook layouts_;
  std::unique_ptr<attach::AttachServer> attach_;
  std::unique_ptr<CacheService> cache_;
  std::unique_ptr<AdminService> admin_;
  std::unique_ptr<grpc::Server> grpc_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_SERVER_H_
