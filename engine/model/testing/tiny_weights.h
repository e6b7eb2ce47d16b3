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

// Reorders rows of q and k from halves to side by side, as GGUF has them for
// `llama`.
void PairRows(int head_dim, TinyTensor* tensor);

}  // namespace holdfast::model::testing

#endif  // HOLDFAST_ENGINE_MODEL_TESTING_TINY_WEIGHTS_H_
