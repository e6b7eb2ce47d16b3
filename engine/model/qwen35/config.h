// The effective configuration of Qwen3.5 (dense and mixture of experts) and
// Qwen3-Next: gated delta net layers with a gated attention layer every few.
#ifndef HOLDFAST_ENGINE_MODEL_QWEN35_CONFIG_H_
#define HOLDFAST_ENGINE_MODEL_QWEN35_CONFIG_H_

#include <string>
#include <vector>

#include "engine/model/gguf.h"
#include "engine/model/json.h"
#include "engine/model/rope.h"
#include "kernels/status.h"

namespace holdfast::model {

struct Qwen35Config {
  // "qwen3_5", "qwen3_5_moe" or "qwen3_next".
  std::string architecture;
  int vocab_size = 0;
  int max_context = 0;  // tokens
  int layers = 0;
  int hidden = 0;
  int ffn = 0;  // of layers without experts; 0: there are none
  float rms_eps = 0;
  bool tied_embeddings = false;
  std::vector<bool> attention;  // of each layer; else a gated delta net
  std::vector<bool> sparse;     // of each layer; else a dense feed-forward

  // Gated attention.
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int rotary_dims = 0;
  RopeConfig rope;

  // Gated delta net.
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;

  // Experts; 0 without sparse layers.
  int experts = 0;
  int top_k = 0;
  int expert_ffn = 0;
  int shared_ffn = 0;
  bool normalise_top_k = true;

  int attention_layers() const;
  int gdn_layers() const { return layers - attention_layers(); }
  bool has_experts() const { return experts > 0; }
};

// Whether model_type, or general.architecture of a GGUF file, is of this
// family.
bool IsQwen35ModelType(const std::string& name);
bool IsQwen35GgufArchitecture(const std::string& name);

// Each reads every key that reaches the arithmetic: of a config.json whose text
// part is flat or nested under text_config, or of a GGUF file's metadata. A key
// that would change the arithmetic and is not implemented is an error that
// names it. `file` is for messages.
kernels::StatusOr<Qwen35Config> Qwen35ConfigFromJson(JsonValue config,
                                                     const std::string& file);
kernels::StatusOr<Qwen35Config> Qwen35ConfigFromGguf(const GgufFile& file);

// Sizes that fit together and lie in sane bounds; an error names the value.
kernels::Status CheckQwen35Config(const Qwen35Config& config,
                                  const std::string& file);

// Canonical text of everything above that reaches cached bytes, for the
// fingerprint: all but the context length.
std::string Qwen35ConfigText(const Qwen35Config& config);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_QWEN35_CONFIG_H_
