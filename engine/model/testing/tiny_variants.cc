#include "engine/model/testing/tiny_variants.h"

namespace holdfast::model::testing {

std::optional<TinyModelOptions> TinyVariant(std::string_view name) {
  TinyModelOptions options;
  if (name == "tiny-llama") return options;
  if (name == "tiny-bytes") {
    options.merges = false;
    return options;
  }
  if (name == "tiny-llama3") {
    options.tied_embeddings = true;
    options.layers = 2;
    options.rope = {.theta = 500000,
                    .scaling = RopeConfig::Scaling::kLlama3,
                    .factor = 32,
                    .low_freq_factor = 1,
                    .high_freq_factor = 4,
                    .original_context = 512};
    return options;
  }
  if (name == "tiny-linear") {
    options.layers = 2;
    options.rope = {
        .theta = 10000, .scaling = RopeConfig::Scaling::kLinear, .factor = 4};
    return options;
  }
  if (name == "tiny-qwen2") {
    options.architecture = "qwen2";
    options.layers = 2;
    return options;
  }
  if (name == "tiny-qwen3") {
    options.architecture = "qwen3";
    options.layers = 2;
    options.heads = 4;
    options.kv_heads = 2;
    return options;
  }
  return std::nullopt;
}

void SetType(kernels::WeightType type, TinyModelOptions* options) {
  options->type = type;
  if (kernels::WeightBlock(type) < 256) return;
  const int wider = 256 / options->hidden;
  if (wider < 2) return;
  options->hidden *= wider;
  options->heads *= wider;
  options->kv_heads *= wider;
}

}  // namespace holdfast::model::testing
