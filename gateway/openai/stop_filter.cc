#include "gateway/openai/stop_filter.h"

#include <algorithm>
#include <utility>

namespace holdfast::openai {

StopFilter::StopFilter(std::vector<std::string> stops)
    : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    longest_ = std::max(longest_, stop.size());
  }
}

std::string StopFilter::Push(std::string_view text) {
  if (stopped_) return "";
  held_ += text;
  std::size_t match_end = std::string::npos;
  std::size_t match_begin = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const std::size_t end = begin + stop.size();
    if (end < match_end || (end == match_end && begin < match_begin)) {
      match_end = end;
      match_begin = begin;
    }
  }
  stopped_ = match_end != std::string::npos;
  const std::size_t sent = stopped_ ? match_begin : held_.size() - HeldBack();
  std::string out = held_.substr(0, sent);
  held_.erase(0, stopped_ ? held_.size() : sent);
  return out;
}

std::string StopFilter::Finish() { return std::exchange(held_, {}); }

// The length of the longest suffix that begins a stop string. A stop string
// starts with a whole character, so the cut is between two.
std::size_t StopFilter::HeldBack() const {
  if (longest_ == 0) return 0;
  const std::string_view held = held_;
  for (std::size_t length = std::min(held.size(), longest_ - 1); length > 0;
       --length) {
    const std::string_view suffix = held.substr(held.size() - length);
    for (const std::string& stop : stops_) {
      if (stop.starts_with(suffix)) return length;
    }
  }
  return 0;
}

}  // namespace holdfast::openai
