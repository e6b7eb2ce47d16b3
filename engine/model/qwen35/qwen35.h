// Forward pass of the Qwen3.5 family.
#ifndef HOLDFAST_ENGINE_MODEL_QWEN35_QWEN35_H_
#define HOLDFAST_ENGINE_MODEL_QWEN35_QWEN35_H_

#include <memory>
#include <string>

#include "engine/model/model.h"
#include "engine/model/qwen35/config.h"
#include "engine/model/qwen35/weights.h"
#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::model {

// Views and sections as layout.h says. `backend` must outlive the model; this
// prepares it for launches of max_rows. config.max_context is what the rotary
// table covers. The drafting head's weights are kept and not used.
kernels::StatusOr<std::unique_ptr<Model>> MakeQwen35(
    std::string name, const Qwen35Config& config, Qwen35Weights weights,
    kernels::StateType state_type, int max_rows, kernels::Backend* backend);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_QWEN35_QWEN35_H_
