// The engine's types to and from their wire forms.
#ifndef HOLDFAST_ENGINE_SERVICE_CONVERT_H_
#define HOLDFAST_ENGINE_SERVICE_CONVERT_H_

#include "absl/status/statusor.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/response/response_cache.h"
#include "engine/scheduler/request.h"
#include "holdfast/v1/engine.pb.h"

namespace holdfast::engine {

// An error names the field that is no request of ours at all; ranges are
// checked later (CheckRequest).
absl::StatusOr<Request> FromProto(const v1::GenerateRequest& proto);

void ToProto(const Refusal& refusal, v1::Refused* proto);
void ToProto(const CacheReport& cache, v1::CacheReport* proto);
void ToProto(const OutputToken& token, v1::OutputToken* proto);
void ToProto(const Result& result, v1::Finished* proto);
// Each fills in its own fields.
void ToProto(const RequestTotals::Values& totals, v1::EngineStats* proto);
void ToProto(const EngineGauges& gauges, v1::EngineStats* proto);
void ToProto(const ResponseCache::Stats& responses, v1::EngineStats* proto);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SERVICE_CONVERT_H_
