#include "engine/metrics/request_totals.h"

namespace holdfast::engine {

void RequestTotals::Refused(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  ++values_.refused[reason];
}

void RequestTotals::Finished(const Result& result) {
  const CacheReport& cache = result.cache;
  const std::lock_guard lock(mutex_);
  ++values_.finished[FinishReasonName(result.reason)];
  values_.generated_tokens += static_cast<std::uint64_t>(result.output_tokens);
  values_.prompt_tokens["computed"] +=
      static_cast<std::uint64_t>(cache.computed);
  Request request{static_cast<std::uint64_t>(cache.computed), 0};
  for (const auto& [source, rows] : CachedBySource(cache)) {
    values_.prompt_tokens[CacheSourceName(source)] +=
        static_cast<std::uint64_t>(rows);
    request.hit += static_cast<std::uint64_t>(rows);
  }
  request.queried += request.hit;
  if (cache.resumed_at > 0)
    ++values_.resumes[cache.anchor ? AnchorKindName(*cache.anchor) : "rows"];
  if (cache.miss != MissReason::kNone)
    ++values_.misses[MissReasonName(cache.miss)];
  // One that asked for no cache, or never got to run, missed nothing.
  if (cache.miss != MissReason::kBypass && request.queried > 0)
    AddRecent(request);
}

void RequestTotals::AddRecent(const Request& request) {
  RecentHits& recent = values_.recent;
  window_.push_back(request);
  recent.queried_tokens += request.queried;
  recent.hit_tokens += request.hit;
  if (window_.size() > RecentHits::kRequests) {
    recent.queried_tokens -= window_.front().queried;
    recent.hit_tokens -= window_.front().hit;
    window_.pop_front();
  }
  recent.requests = window_.size();
}

RequestTotals::Values RequestTotals::values() const {
  const std::lock_guard lock(mutex_);
  return values_;
}

}  // namespace holdfast::engine
