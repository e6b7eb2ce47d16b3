// The weights of a Llama-family model, packed by a backend.
#ifndef HOLDFAST_ENGINE_MODEL_LLAMA_WEIGHTS_H_
#define HOLDFAST_ENGINE_MODEL_LLAMA_WEIGHTS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/model/llama_config.h"
#include "engine/model/tensors.h"
#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::model {

// How a file format names the tensors; those of layer i are prefix + i + "." +
// name, with ".weight" or ".bias" behind.
struct LlamaNames {
  const char* embedding;
  const char* final_norm;
  const char* head;
  const char* divisors;      // of the rotary frequencies; null: never there
  const char* layer_prefix;  // "blk."
  const char* attention_norm;
  const char* q;
  const char* k;
  const char* v;
  const char* q_norm;
  const char* k_norm;
  const char* output;
  const char* ffn_norm;
  const char* gate;
  const char* up;
  const char* down;
  // Left by older exports of a layer; recomputed here. Null: never there.
  const char* layer_frequencies;
};
extern const LlamaNames kGgufLlamaNames;
extern const LlamaNames kHfLlamaNames;

struct LlamaLayer {
  std::unique_ptr<kernels::Buffer> attention_norm;
  std::unique_ptr<kernels::Matrix> qkv;  // q, k, v rows one after the other
  std::unique_ptr<kernels::Buffer> qkv_bias;  // null: none
  std::unique_ptr<kernels::Buffer> q_norm;    // null: none; with k_norm
  std::unique_ptr<kernels::Buffer> k_norm;
  std::unique_ptr<kernels::Matrix> output;
  std::unique_ptr<kernels::Buffer> output_bias;  // null: none
  std::unique_ptr<kernels::Buffer> ffn_norm;
  std::unique_ptr<kernels::Matrix> gate_up;
  std::unique_ptr<kernels::Matrix> down;
};

struct LlamaWeights {
  std::unique_ptr<kernels::Matrix> embedding;
  std::unique_ptr<kernels::Matrix> head;  // null: the embedding serves
  std::unique_ptr<kernels::Buffer> final_norm;
  std::vector<LlamaLayer> layers;
  std::vector<float> rope_divisors;  // empty: none
  std::size_t bytes = 0;             // packed
};

// Packs every tensor that the configuration asks for. A missing tensor, one of
// another shape, one that holds NaN or infinity, and one that the configuration
// does not ask for are errors that name file and tensor.
kernels::StatusOr<LlamaWeights> LoadLlamaWeights(const LlamaConfig& config,
                                                 const LlamaNames& names,
                                                 TensorMap* tensors,
                                                 kernels::Backend* backend);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_LLAMA_WEIGHTS_H_
