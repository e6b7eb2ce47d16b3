// gRPC service CacheAdmin: what operators ask.
#ifndef HOLDFAST_CACHESVC_SERVICE_ADMIN_SERVICE_H_
#define HOLDFAST_CACHESVC_SERVICE_ADMIN_SERVICE_H_

#include <chrono>

#include "cachesvc/attach/announced_layout.h"
#include "cachesvc/config.h"
#include "grpcpp/grpcpp.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/attach/attach_server.h"

namespace holdfast::cachesvc {

// Thread-safe.
class AdminService final : public v1::CacheAdmin::Service {
 public:
  // All outlive the service.
  AdminService(const Config& config, const attach::AttachServer& attach,
               const LayoutBook& layouts)
      : config_(config), attach_(attach), layouts_(layouts) {}

  grpc::Status Status(grpc::ServerContext* context,
                      const v1::CacheStatusRequest* request,
                      v1::CacheStatus* response) override;
  grpc::Status Metrics(grpc::ServerContext* context,
                       const v1::CacheMetricsRequest* request,
                       v1::CacheMetrics* response) override;

 private:
  const Config& config_;
  const attach::AttachServer& attach_;
  const LayoutBook& layouts_;
  const std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_SERVICE_ADMIN_SERVICE_H_
