// The one place where absl::Status and grpc::Status become each other.
#ifndef HOLDFAST_SHARED_GRPC_STATUS_H_
#define HOLDFAST_SHARED_GRPC_STATUS_H_

#include <string_view>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace holdfast {

grpc::Status ToGrpcStatus(const absl::Status& status);
// `call` says what was asked of whom; it comes first in the message.
absl::Status FromGrpcStatus(const grpc::Status& status, std::string_view call);

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_GRPC_STATUS_H_
