#include "engine/model/testing/tiny_variants.h"

namespace holdfast::model::testing {

namespace {

// Three gated delta nets, then attention; two value heads a key head.
TinyModelOptions SmallHybrid(const char* architecture) {
  TinyModelOptions options;
  options.architecture = architecture;
  options.hidden = 64;
  options.layers = 4;
  options.ffn = 96;
  options.rope.theta = 1e7;
  options.merges = false;
  return options;
}

TinyModelOptions TinyHybrid() {
  TinyModelOptions options;
  options.architecture = "qwen3_5";
  options.type = kernels::WeightType::kBF16;
  options.hidden = 256;
  options.layers = 8;
  options.heads = 4;
  options.kv_heads = 2;
  options.ffn = 768;
  options.max_context = 65536;
  options.rope.theta = 1e7;
  options.tied_embeddings = true;
  options.hybrid.key_heads = 4;
  options.hybrid.value_heads = 8;
  options.hybrid.key_dim = 64;
  options.hybrid.value_dim = 64;
  return options;
}

}  // namespace

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
  if (name == "tiny-hybrid") return TinyHybrid();
  if (name == "tiny-qwen35") return SmallHybrid("qwen3_5");
  if (name == "tiny-qwen35-moe") return SmallHybrid("qwen3_5_moe");
  if (name == "tiny-qwen3-next") {
    options = SmallHybrid("qwen3_next");
    options.hybrid.fused_experts = false;
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
