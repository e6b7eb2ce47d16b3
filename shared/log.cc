#include "shared/log.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace holdfast {

absl::Status InitLog(std::string_view daemon, const std::string& level) {
  constexpr std::array<std::string_view, 5> kLevels = {"trace", "debug", "info",
                                                       "warn", "error"};
  bool known = false;
  for (std::string_view name : kLevels) known = known || name == level;
  if (!known) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--log-level ", level, ": not one of trace, debug, info, warn, error"));
  }
  auto logger = spdlog::stderr_logger_mt(std::string(daemon));
  logger->set_level(spdlog::level::from_str(level));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %L %n | %v",
                      spdlog::pattern_time_type::utc);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

}  // namespace holdfast
