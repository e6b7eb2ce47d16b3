// cachectl's calls to the cache service.
#ifndef HOLDFAST_CACHESVC_CACHECTL_CLIENT_H_
#define HOLDFAST_CACHESVC_CACHECTL_CLIENT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "shared/deadlines.h"
#include "shared/grpc_status.h"

namespace holdfast::cachesvc {

// Every call has a deadline: of a control call, or of work that reads files.
class CacheClient {
 public:
  static constexpr std::chrono::minutes kLongWork{60};

  explicit CacheClient(std::string path);

  // `method` is one of the stub's unary calls.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(
      grpc::Status (v1::CacheAdmin::Stub::*method)(grpc::ClientContext*,
                                                   const Request&, Response*),
      const Request& request,
      std::chrono::milliseconds deadline = deadlines::kControl) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + deadline);
    Response response;
    const grpc::Status status =
        (stub_.get()->*method)(&context, request, &response);
    if (!status.ok()) return Failed(status);
    return response;
  }

  absl::Status Verify(
      const v1::CacheVerifyRequest& request,
      const std::function<void(const v1::CacheVerifyProgress&)>& progress);

  // The key that `text` names: 64 hexadecimal digits, or the start of exactly
  // one anchor's or session's.
  absl::StatusOr<std::string> ResolveKey(const std::string& text);

 private:
  absl::Status Failed(const grpc::Status& status) const;

  const std::string path_;
  std::unique_ptr<v1::CacheAdmin::Stub> stub_;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_CACHECTL_CLIENT_H_
