// The deadline of a call to the cache service.
#ifndef HOLDFAST_ENGINE_CACHE_CALL_DEADLINE_H_
#define HOLDFAST_ENGINE_CACHE_CALL_DEADLINE_H_

#include <algorithm>
#include <chrono>

#include "grpcpp/client_context.h"

namespace holdfast::engine {

// gRPC's deadlines are of the system clock; what is left is what counts.
inline void SetDeadline(grpc::ClientContext& context,
                        std::chrono::steady_clock::time_point until) {
  using std::chrono::milliseconds;
  const auto left =
      std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
  context.set_deadline(std::chrono::system_clock::now() +
                       std::max(left, milliseconds(0)));
}

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_CALL_DEADLINE_H_
