#include "engine/scheduler/request.h"

namespace holdfast::engine {

std::vector<std::pair<CacheSource, int>> CachedBySource(
    const CacheReport& cache) {
  std::vector<std::pair<CacheSource, int>> sources;
  const int pool = cache.resumed_at - cache.restored;
  if (cache.restored > 0) {
    sources.emplace_back(cache.source, cache.restored);
    if (pool > 0) sources.emplace_back(CacheSource::kResident, pool);
  } else if (pool > 0) {
    sources.emplace_back(cache.source, pool);
  }
  return sources;
}

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      break;
  }
  return "error";
}

}  // namespace holdfast::engine
