// Forward pass of the Llama family.
#ifndef HOLDFAST_ENGINE_MODEL_LLAMA_H_
#define HOLDFAST_ENGINE_MODEL_LLAMA_H_

#include <memory>
#include <string>

#include "engine/model/llama_config.h"
#include "engine/model/llama_weights.h"
#include "engine/model/model.h"
#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::model {

// Views "K" and "V" (parts: layers), section "h_last": the residual stream of
// the last row before the final norm, hidden floats. `backend` must outlive the
// model; this prepares it for launches of max_rows. config.max_context is what
// the rotary table covers.
kernels::StatusOr<std::unique_ptr<Model>> MakeLlama(
    std::string name, const LlamaConfig& config, LlamaWeights weights,
    kernels::StateType state_type, int max_rows, kernels::Backend* backend);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_LLAMA_H_
