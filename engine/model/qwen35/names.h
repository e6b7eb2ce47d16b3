// How file formats name the tensors of the Qwen3.5 family.
#ifndef HOLDFAST_ENGINE_MODEL_QWEN35_NAMES_H_
#define HOLDFAST_ENGINE_MODEL_QWEN35_NAMES_H_

#include <string>

#include "engine/model/qwen35/config.h"
#include "engine/model/qwen35/head_order.h"
#include "engine/model/tensors.h"

namespace holdfast::model {

// Names of a layer's tensors stand behind its prefix; null: the format has no
// such tensor.
struct Qwen35Names {
  std::string embedding;
  std::string final_norm;
  std::string head;
  std::string layer_prefix;  // with a layer's number and "." behind

  // MTP layers are numbered on from here, under this prefix.
  std::string mtp_layer_prefix;
  int first_mtp_layer = 0;
  std::string mtp_fc;
  std::string mtp_norm;
  std::string mtp_embedding_norm;
  std::string mtp_hidden_norm;

  const char* input_norm = nullptr;
  const char* post_norm = nullptr;
  const char* q = nullptr;
  const char* k = nullptr;
  const char* v = nullptr;
  const char* q_norm = nullptr;
  const char* k_norm = nullptr;
  const char* output = nullptr;
  GdnFileOrder gdn_order = GdnFileOrder::kGrouped;
  const char* qkv = nullptr;  // with kFused: q, k, v and z
  const char* z = nullptr;
  const char* b = nullptr;  // with kFused: b and a
  const char* a = nullptr;
  const char* conv = nullptr;
  const char* decay = nullptr;
  const char* dt_bias = nullptr;
  const char* gdn_norm = nullptr;
  const char* gdn_output = nullptr;
  const char* gate = nullptr;
  const char* up = nullptr;
  const char* down = nullptr;

  const char* router = nullptr;
  const char* shared_router = nullptr;
  const char* shared_gate = nullptr;
  const char* shared_up = nullptr;
  const char* shared_down = nullptr;
  // All experts' matrices in one tensor, slowest dimension the expert: gate and
  // up joined, or apart.
  const char* experts_gate_up = nullptr;
  const char* experts_gate = nullptr;
  const char* experts_up = nullptr;
  const char* experts_down = nullptr;
  // Else each expert's stand behind this and its number, with these names.
  const char* expert_prefix = nullptr;
  const char* expert_gate = nullptr;
  const char* expert_up = nullptr;
  const char* expert_down = nullptr;

  bool is_gguf = false;
  // Hugging Face files store the weights of all norms but the gated one minus
  // 1, A_log and not -exp(A_log), and convolutions as [channels, 1, taps].
  bool reference_form() const { return !is_gguf; }
};

// `tensors` tells the prefix: a text model's own, or the one it has inside a
// model with images.
Qwen35Names HfQwen35Names(const Qwen35Config& config, const TensorMap& tensors);
Qwen35Names GgufQwen35Names(const Qwen35Config& config);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_QWEN35_NAMES_H_
