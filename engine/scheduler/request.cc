#include "engine/scheduler/request.h"

namespace holdfast::engine {

SourceRows CachedBySource(const CacheReport& cache) {
  SourceRows sources;
  if (cache.restored > 0) sources.emplace_back(cache.source, cache.restored);
  sources.insert(sources.end(), cache.rows_of.begin(), cache.rows_of.end());
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
