// cachectl's one call to the engine.
#ifndef HOLDFAST_CACHESVC_CACHECTL_LIVE_SESSION_H_
#define HOLDFAST_CACHESVC_CACHECTL_LIVE_SESSION_H_

#include <string>

#include "absl/status/statusor.h"
#include "holdfast/v1/engine.pb.h"

namespace holdfast::cachesvc {

// Has the engine of this run directory write a resident conversation to the
// session spill, pinned. Waits until it is durable; the error says why it is
// not.
absl::StatusOr<v1::SaveSessionResponse> SaveLiveSession(
    const std::string& run_dir, const std::string& session_key);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_CACHECTL_LIVE_SESSION_H_
