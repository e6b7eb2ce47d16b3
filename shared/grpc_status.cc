#include "shared/grpc_status.h"

#include <string>

#include "fmt/format.h"

namespace holdfast {

// absl and gRPC number the canonical codes alike.
grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status, std::string_view call) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      fmt::format("{}: {}", call, status.error_message()));
}

}  // namespace holdfast
