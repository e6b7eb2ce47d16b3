#include "engine/output/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace holdfast::engine {

StopMatcher::StopMatcher(std::vector<std::string> stops)
    : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    longest_ = std::max(longest_, stop.size());
  }
}

std::optional<int> StopMatcher::Append(std::string_view bytes) {
  if (stops_.empty()) return std::nullopt;
  tail_ += bytes;
  std::optional<int> found;
  std::size_t first = std::string::npos;
  for (std::size_t i = 0; i < stops_.size(); ++i) {
    const std::size_t at = tail_.find(stops_[i]);
    if (at < first) {
      first = at;
      found = static_cast<int>(i);
    }
  }
  // A match still to come reaches into bytes not seen yet.
  if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - (longest_ - 1));
  return found;
}

}  // namespace holdfast::engine
