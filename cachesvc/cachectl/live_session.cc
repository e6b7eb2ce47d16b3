#include "cachesvc/cachectl/live_session.h"

#include <chrono>

#include "cachesvc/cachectl/client.h"
#include "fmt/format.h"
#include "grpcpp/grpcpp.h"
#include "holdfast/v1/engine.grpc.pb.h"
#include "shared/grpc_status.h"

namespace holdfast::cachesvc {

absl::StatusOr<v1::SaveSessionResponse> SaveLiveSession(
    const std::string& run_dir, const std::string& session_key) {
  const std::string path = run_dir + "/engine.sock";
  const auto stub = v1::Engine::NewStub(
      grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials()));
  v1::SaveSessionRequest request;
  request.set_session_key(session_key);
  v1::SaveSessionResponse response;
  grpc::ClientContext context;
  // Behind a running request, then as long as the disk takes.
  context.set_deadline(std::chrono::system_clock::now() +
                       CacheClient::kLongWork);
  const grpc::Status status = stub->SaveSession(&context, request, &response);
  if (!status.ok()) {
    return FromGrpcStatus(status,
                          fmt::format("save by the engine at {}", path));
  }
  return response;
}

}  // namespace holdfast::cachesvc
