// Checks of flags' values that every daemon makes the same way.
#ifndef HOLDFAST_SHARED_FLAG_CHECKS_H_
#define HOLDFAST_SHARED_FLAG_CHECKS_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace holdfast {

// InvalidArgument names the flag and the bounds. NaN is in no range.
inline absl::Status CheckRange(const char* flag, double value, double least,
                               double most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} {}: must be {} to {}", flag, value, least, most));
}

inline absl::Status CheckChoice(const char* flag, const std::string& value,
                                const std::vector<std::string>& choices) {
  if (std::ranges::find(choices, value) != choices.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(fmt::format(
      "{} {}: must be one of {}", flag, value, fmt::join(choices, ", ")));
}

// The first that is not OK.
inline absl::Status FirstBad(const std::vector<absl::Status>& checks) {
  for (const absl::Status& status : checks) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_FLAG_CHECKS_H_
