// gRPC service Cache: the attached engine's calls.
#ifndef HOLDFAST_CACHESVC_SERVICE_CACHE_SERVICE_H_
#define HOLDFAST_CACHESVC_SERVICE_CACHE_SERVICE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachesvc/attach/announced_layout.h"
#include "cachesvc/device/device_pools.h"
#include "cachesvc/service/tiers.h"
#include "cachesvc/store/gate.h"
#include "grpcpp/grpcpp.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/attach/attach_server.h"

namespace holdfast::cachesvc {

// Thread-safe. Every call of another epoch than the attached engine's is
// refused with FAILED_PRECONDITION.
class CacheService final : public v1::Cache::Service {
 public:
  // All outlive the service.
  CacheService(const attach::AttachServer& attach, LayoutBook& layouts,
               DevicePools& devices, Tiers& tiers)
      : attach_(attach), layouts_(layouts), devices_(devices), tiers_(tiers) {}

  grpc::Status AnnounceLayout(grpc::ServerContext* context,
                              const v1::AnnounceLayoutRequest* request,
                              v1::AnnounceLayoutResponse* response) override;
  grpc::Status Lookup(grpc::ServerContext* context,
                      const v1::LookupRequest* request,
                      v1::LookupResponse* response) override;
  grpc::Status Admit(grpc::ServerContext* context,
                     const v1::AdmitRequest* request,
                     v1::AdmitResponse* response) override;
  grpc::Status RestoreBegin(grpc::ServerContext* context,
                            const v1::RestoreBeginRequest* request,
                            v1::RestoreBeginResponse* response) override;
  grpc::Status RestoreNext(grpc::ServerContext* context,
                           const v1::RestoreNextRequest* request,
                           v1::RestoreNextResponse* response) override;
  grpc::Status RestoreEnd(grpc::ServerContext* context,
                          const v1::RestoreEndRequest* request,
                          v1::RestoreEndResponse* response) override;
  grpc::Status GetRecord(grpc::ServerContext* context,
                         const v1::GetRecordRequest* request,
                         v1::GetRecordResponse* response) override;
  grpc::Status PutRecord(grpc::ServerContext* context,
                         const v1::PutRecordRequest* request,
                         v1::PutRecordResponse* response) override;
  grpc::Status Store(grpc::ServerContext* context,
                     const v1::StoreRequest* request,
                     v1::StoreResponse* response) override;
  grpc::Status Drained(grpc::ServerContext* context,
                       const v1::DrainedRequest* request,
                       v1::DrainedResponse* response) override;
  grpc::Status Residents(grpc::ServerContext* context,
                         const v1::ResidentsRequest* request,
                         v1::ResidentsResponse* response) override;
  grpc::Status FreeStore(grpc::ServerContext* context,
                         const v1::FreeStoreRequest* request,
                         v1::FreeStoreResponse* response) override;

 private:
  absl::Status Announce(const v1::AnnounceLayoutRequest& request,
                        v1::AnnounceLayoutResponse& response);
  // Inside, the epoch is the attached engine's, and what a later engine
  // announces comes after it: an announcement that took long undoes nothing of
  // a newer one.
  absl::StatusOr<Gate::Pass> EnterAnnounce(std::uint64_t epoch);

  Gate announce_gate_;
  const attach::AttachServer& attach_;
  LayoutBook& layouts_;
  DevicePools& devices_;
  Tiers& tiers_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_SERVICE_CACHE_SERVICE_H_
