// The engine's gRPC server on its Unix socket.
#ifndef HOLDFAST_ENGINE_SERVER_H_
#define HOLDFAST_ENGINE_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/service/engine_service.h"
#include "grpcpp/server.h"

namespace holdfast::engine {

// Serves `service`, which outlives the server, and gRPC's health service, which
// says NOT_SERVING until SetHealthy. The error names the socket.
absl::StatusOr<std::unique_ptr<grpc::Server>> StartServer(
    const std::string& socket_path, EngineService* service);

void SetHealthy(grpc::Server& server, bool healthy);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SERVER_H_
