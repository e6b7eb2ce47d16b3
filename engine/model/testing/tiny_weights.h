// Random weights of the generated models, by their Hugging Face names.
#ifndef HOLDFAST_ENGINE_MODEL_TESTING_TINY_WEIGHTS_H_
#define HOLDFAST_ENGINE_MODEL_TESTING_TINY_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/testing/tiny_model.h"

namespace holdfast::model::testing {

struct TinyTensor {
  std::string name;       // "model.layers.0.self_attn.q_proj.weight"
  std::string gguf_name;  // "blk.0.attn_q.weight"
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// Each tensor depends on the seed, its name and its shape alone. Scaled so that
// attention is neither flat nor one-hot and logits spread by a few units.
std::vector<TinyTensor> MakeTinyWeights(const TinyModelOptions& options,
                                        int vocab_size);

// What GGUF files have of a tensor, under their names: rows of q and k with
// rotary pairs side by side for `llama`; for the Qwen3.5 family norms around 1,
// decay rates, value heads tiled, and experts' gates and ups apart.
std::vector<TinyTensor> ToGgufForm(const TinyModelOptions& options,
                                   TinyTensor tensor);

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_TINY_WEIGHTS_H_
