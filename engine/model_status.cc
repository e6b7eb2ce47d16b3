#include "engine/model_status.h"

namespace holdfast::engine {
namespace {

absl::StatusCode ToAbslCode(kernels::StatusCode code) {
  switch (code) {
    case kernels::StatusCode::kOk:
      return absl::StatusCode::kOk;
    case kernels::StatusCode::kInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case kernels::StatusCode::kNotFound:
      return absl::StatusCode::kNotFound;
    case kernels::StatusCode::kUnimplemented:
      return absl::StatusCode::kUnimplemented;
    case kernels::StatusCode::kResourceExhausted:
      return absl::StatusCode::kResourceExhausted;
    case kernels::StatusCode::kFailedPrecondition:
      return absl::StatusCode::kFailedPrecondition;
    case kernels::StatusCode::kDataLoss:
      return absl::StatusCode::kDataLoss;
    case kernels::StatusCode::kInternal:
      break;
  }
  return absl::StatusCode::kInternal;
}

}  // namespace

absl::Status ToAbslStatus(const kernels::Status& status) {
  return absl::Status(ToAbslCode(status.code()), status.message());
}

}  // namespace holdfast::engine
