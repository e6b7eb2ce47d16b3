// The one place where errors of kernels/ and engine/model/ become absl's.
#ifndef HOLDFAST_ENGINE_MODEL_STATUS_H_
#define HOLDFAST_ENGINE_MODEL_STATUS_H_

#include "absl/status/status.h"
#include "kernels/status.h"

namespace holdfast::engine {

absl::Status ToAbslStatus(const kernels::Status& status);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_MODEL_STATUS_H_
