// What cachectl prints.
#ifndef HOLDFAST_CACHESVC_CACHECTL_RENDER_H_
#define HOLDFAST_CACHESVC_CACHECTL_RENDER_H_

#include <string>

#include "absl/status/statusor.h"
#include "holdfast/v1/cache.pb.h"
#include "holdfast/v1/engine.pb.h"

namespace holdfast::cachesvc {

// Lines for people; ends with a newline. Bytes that would act on a terminal
// are replaced. `engine` is what the engine says of itself: its link is up a
// moment after the service took it.
std::string StatusTable(const v1::CacheStatus& status,
                        const absl::StatusOr<v1::EngineStatus>& engine);

// One JSON object with the fields' names of the proto; `engine` is null when
// none is attached, `engine_link` when the engine does not answer; epoch and
// fingerprint are in hex.
std::string StatusJson(const v1::CacheStatus& status,
                       const absl::StatusOr<v1::EngineStatus>& engine);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_CACHECTL_RENDER_H_
