// gRPC service Cache: the attached engine's calls.
#ifndef HOLDFAST_CACHESVC_SERVICE_CACHE_SERVICE_H_
#define HOLDFAST_CACHESVC_SERVICE_CACHE_SERVICE_H_

#include "cachesvc/attach/announced_layout.h"
#include "grpcpp/grpcpp.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/attach/attach_server.h"

namespace holdfast::cachesvc {

// Thread-safe. Every call of another epoch than the attached engine's is
// refused with FAILED_PRECONDITION.
class CacheService final : public v1::Cache::Service {
 public:
  // Both outlive the service.
  CacheService(const attach::AttachServer& attach, LayoutBook& layouts)
      : attach_(attach), layouts_(layouts) {}

  grpc::Status AnnounceLayout(grpc::ServerContext* context,
                              const v1::AnnounceLayoutRequest* request,
                              v1::AnnounceLayoutResponse* response) override;

 private:
  const attach::AttachServer& attach_;
  LayoutBook& layouts_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_SERVICE_CACHE_SERVICE_H_
