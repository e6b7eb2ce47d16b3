// gRPC service CacheAdmin: what operators ask.
#ifndef HOLDFAST_CACHESVC_SERVICE_ADMIN_SERVICE_H_
#define HOLDFAST_CACHESVC_SERVICE_ADMIN_SERVICE_H_

#include <chrono>

#include "cachesvc/attach/announced_layout.h"
#include "cachesvc/config.h"
#include "cachesvc/service/disk_admin.h"
#include "grpcpp/grpcpp.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/attach/attach_server.h"

namespace holdfast::cachesvc {

// Thread-safe.
class AdminService final : public v1::CacheAdmin::Service {
 public:
  // All outlive the service.
  AdminService(const Config& config, const attach::AttachServer& attach,
               const LayoutBook& layouts, Tiers& tiers)
      : config_(config), attach_(attach), layouts_(layouts), tiers_(tiers) {}

  grpc::Status Status(grpc::ServerContext* context,
                      const v1::CacheStatusRequest* request,
                      v1::CacheStatus* response) override;
  grpc::Status Metrics(grpc::ServerContext* context,
                       const v1::CacheMetricsRequest* request,
                       v1::CacheMetrics* response) override;
  grpc::Status Stats(grpc::ServerContext* context,
                     const v1::CacheStatsRequest* request,
                     v1::CacheStats* response) override;
  grpc::Status List(grpc::ServerContext* context,
                    const v1::CacheListRequest* request,
                    v1::CacheListResponse* response) override;
  grpc::Status Show(grpc::ServerContext* context,
                    const v1::CacheShowRequest* request,
                    v1::CacheShowResponse* response) override;
  grpc::Status Verify(
      grpc::ServerContext* context, const v1::CacheVerifyRequest* request,
      grpc::ServerWriter<v1::CacheVerifyProgress>* writer) override;
  grpc::Status Evict(grpc::ServerContext* context,
                     const v1::CacheEvictRequest* request,
                     v1::CacheEvictResponse* response) override;
  grpc::Status Clear(grpc::ServerContext* context,
                     const v1::CacheClearRequest* request,
                     v1::CacheClearResponse* response) override;
  grpc::Status Pin(grpc::ServerContext* context,
                   const v1::CachePinRequest* request,
                   v1::CachePinResponse* response) override;
  grpc::Status SetDisk(grpc::ServerContext* context,
                       const v1::CacheSetDiskRequest* request,
                       v1::CacheSetDiskResponse* response) override;
  grpc::Status RebuildIndex(grpc::ServerContext* context,
                            const v1::CacheRebuildIndexRequest* request,
                            v1::CacheRebuildIndexResponse* response) override;

 private:
  const Config& config_;
  const attach::AttachServer& attach_;
  const LayoutBook& layouts_;
  Tiers& tiers_;
  const std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_SERVICE_ADMIN_SERVICE_H_
