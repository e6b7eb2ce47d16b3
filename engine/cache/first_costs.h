// What computing costs on this machine, before any request was measured.
#ifndef HOLDFAST_ENGINE_CACHE_FIRST_COSTS_H_
#define HOLDFAST_ENGINE_CACHE_FIRST_COSTS_H_

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

namespace holdfast::engine {

// Prefill rows a second, of about a second's work in memory of its own (the
// backend that `model` was loaded on gives it): larger
// and larger steps while they fit that time, the largest of which counts. One
// step at least, however long it takes.
absl::StatusOr<double> MeasurePrefillRate(model::Model& model,
                                          kernels::Backend& backend,
                                          int max_rows);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_FIRST_COSTS_H_
