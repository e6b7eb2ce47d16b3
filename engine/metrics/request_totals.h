// What requests did, in numbers: for the statistics calls.
#ifndef HOLDFAST_ENGINE_METRICS_REQUEST_TOTALS_H_
#define HOLDFAST_ENGINE_METRICS_REQUEST_TOTALS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "engine/scheduler/request.h"

namespace holdfast::engine {

// Hit and queried tokens of the newest requests that read the cache.
struct RecentHits {
  static constexpr std::size_t kRequests = 1000;
  std::uint64_t requests = 0;
  std::uint64_t queried_tokens = 0;
  std::uint64_t hit_tokens = 0;

  double rate() const {
    return queried_tokens == 0 ? 0
                               : static_cast<double>(hit_tokens) /
                                     static_cast<double>(queried_tokens);
  }
};

// Thread-safe.
class RequestTotals {
 public:
  using Counts = std::map<std::string, std::uint64_t>;
  struct Values {
    Counts prompt_tokens;  // by source; "computed" is one
    Counts finished;       // by finish reason
    Counts refused;        // by reason
    Counts misses;         // by reason
    Counts resumes;        // by anchor; "rows": at none
    std::uint64_t generated_tokens = 0;
    RecentHits recent;
  };

  void Refused(const std::string& reason);
  void Finished(const Result& result);
  Values values() const;

 private:
  struct Request {
    std::uint64_t queried = 0;
    std::uint64_t hit = 0;
  };
  void AddRecent(const Request& request);  // needs mutex_

  mutable std::mutex mutex_;
  Values values_;
  std::deque<Request> window_;  // at most RecentHits::kRequests
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_METRICS_REQUEST_TOTALS_H_
