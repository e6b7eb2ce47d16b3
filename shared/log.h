// Logging of a daemon: spdlog's default logger on standard error, one line an
// event: "2026-01-31T12:00:00.123Z I engine | request done id=... ms=...".
#ifndef HOLDFAST_SHARED_LOG_H_
#define HOLDFAST_SHARED_LOG_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "spdlog/spdlog.h"

namespace holdfast {

// Call once, before the first thread. `level`: trace, debug, info, warn, error;
// anything else is an error that names it.
absl::Status InitLog(std::string_view daemon, const std::string& level);

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_LOG_H_
