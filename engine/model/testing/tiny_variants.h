// The generated models that have a name: one for each thing an adapter can do
// differently. Golden files are made of them.
#ifndef HOLDFAST_ENGINE_MODEL_TESTING_TINY_VARIANTS_H_
#define HOLDFAST_ENGINE_MODEL_TESTING_TINY_VARIANTS_H_

#include <optional>
#include <string_view>

#include "engine/model/testing/tiny_model.h"

namespace holdfast::model::testing {

// "tiny-llama", "tiny-bytes", "tiny-llama3" (llama3 rotary scaling, tied
// embeddings), "tiny-linear" (linear scaling), "tiny-qwen2", "tiny-qwen3"
// (heads wider than hidden / heads), "tiny-qwen35", "tiny-qwen35-moe",
// "tiny-qwen3-next" (experts one by one, every byte a token), "tiny-hybrid"
// (large enough that a prompt takes a while); none for another name.
std::optional<TinyModelOptions> TinyVariant(std::string_view name);

// Sets the storage type, and for types of blocks of 256 makes every matrix wide
// enough.
void SetType(kernels::WeightType type, TinyModelOptions* options);

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_TINY_VARIANTS_H_
