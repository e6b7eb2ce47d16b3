// What computing and reading cost on this machine, before any request was
// measured.
#ifndef HOLDFAST_ENGINE_CACHE_FIRST_COSTS_H_
#define HOLDFAST_ENGINE_CACHE_FIRST_COSTS_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/cache/planner_costs.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

namespace holdfast::engine {

// Prefill rows a second, of about a second's work in memory of its own (the
// backend that `model` was loaded on gives it): larger and larger steps while
// they fit that time, the largest of which counts. One step at least, however
// long it takes.
absl::StatusOr<double> MeasurePrefillRate(model::Model& model,
                                          kernels::Backend& backend,
                                          int max_rows);

// What an earlier engine of this model measured, where it did; else `measure`
// is asked for a prefill rate. When that fails, a slow machine is reckoned with
// until requests were measured. Says in the log which it is.
std::unique_ptr<PlannerCosts> FirstCosts(
    const PlannerRates& remembered,
    const std::function<absl::StatusOr<double>()>& measure);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_FIRST_COSTS_H_
