// The effective configuration of a model of the Llama family (llama, qwen2,
// qwen3: dense, grouped-query attention, rotary positions, gated SiLU).
#ifndef HOLDFAST_ENGINE_MODEL_LLAMA_CONFIG_H_
#define HOLDFAST_ENGINE_MODEL_LLAMA_CONFIG_H_

#include <string>

#include "engine/model/gguf.h"
#include "engine/model/json.h"
#include "engine/model/rope.h"
#include "kernels/status.h"

namespace holdfast::model {

struct LlamaConfig {
  std::string architecture;  // "llama", "qwen2" or "qwen3"
  int vocab_size = 0;
  int max_context = 0;  // tokens
  int layers = 0;
  int hidden = 0;
  int ffn = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float rms_eps = 0;
  RopeConfig rope;
  bool rope_divisors = false;  // the file has a tensor of them
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output product
  bool qk_norm = false;      // each head of q and k is normalised
  bool tied_embeddings = false;
  // Rows of q and k lie with rotary pairs side by side, as GGUF converters
  // write them for `llama`; the arithmetic here pairs halves.
  bool paired_rows = false;
};

// Each reads every key that reaches the arithmetic, of an architecture of this
// family. A key that would change it and is not implemented is an error that
// names the key. `file` is for messages.
kernels::StatusOr<LlamaConfig> LlamaConfigFromGguf(const GgufFile& file);
kernels::StatusOr<LlamaConfig> LlamaConfigFromJson(JsonValue config,
                                                   const std::string& file);

// Sizes that fit together and lie in sane bounds; an error names the value.
kernels::Status CheckLlamaConfig(const LlamaConfig& config,
                                 const std::string& file);

// Canonical text of everything above that reaches cached bytes, for the
// fingerprint: all but the context length.
std::string LlamaConfigText(const LlamaConfig& config);

// Whether model_type or general.architecture is of this family.
bool IsLlamaArchitecture(const std::string& name);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_LLAMA_CONFIG_H_
