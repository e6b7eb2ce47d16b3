#include "engine/server.h"

#include "fmt/format.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "shared/daemon.h"

namespace holdfast::engine {
namespace {

// A prompt is four or five bytes a token.
constexpr int kMaxMessageBytes = 64 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<grpc::Server>> StartServer(
    const std::string& socket_path, EngineService* service) {
  const auto target = UnixTarget(socket_path);
  if (!target.ok()) return target.status();
  if (auto status = LockSocket(socket_path); !status.ok()) return status;
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(*target, grpc::InsecureServerCredentials());
  builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::UnavailableError(
        fmt::format("cannot listen on {}", socket_path));
  }
  SetHealthy(*server, false);
  return server;
}

void SetHealthy(grpc::Server& server, bool healthy) {
  server.GetHealthCheckService()->SetServingStatus(healthy);
}

}  // namespace holdfast::engine
