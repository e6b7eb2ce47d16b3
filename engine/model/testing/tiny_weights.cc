#include "engine/model/testing/tiny_weights.h"

#include <cstddef>
#include <utility>

#include "engine/model/testing/coarse.h"
#include "engine/model/testing/tensor_maker.h"
#include "engine/model/testing/tiny_hybrid.h"

namespace holdfast::model::testing {
namespace {

constexpr float kNorm = 0.1f;  // around 1
constexpr float kBias = 0.3f;

void MakeLayer(const TinyModelOptions& options, int index, TensorMaker* maker) {
  const std::int64_t hidden = options.hidden;
  const std::int64_t ffn = options.ffn;
  const std::int64_t q = std::int64_t{options.heads} * options.head_dim;
  const std::int64_t kv = std::int64_t{options.kv_heads} * options.head_dim;
  constexpr float kQueryKey = 1.6f;
  const std::string hf = "model.layers." + std::to_string(index) + ".";
  const std::string gguf = "blk." + std::to_string(index) + ".";
  const auto add = [&](const char* hf_name, const char* gguf_name,
                       std::vector<std::int64_t> shape, float deviation,
                       float mean = 0) {
    maker->Add(hf + hf_name, gguf + gguf_name, std::move(shape), deviation,
               mean);
  };
  add("input_layernorm.weight", "attn_norm.weight", {hidden}, kNorm, 1);
  add("self_attn.q_proj.weight", "attn_q.weight", {q, hidden},
      kQueryKey * Fan(hidden));
  add("self_attn.k_proj.weight", "attn_k.weight", {kv, hidden},
      kQueryKey * Fan(hidden));
  add("self_attn.v_proj.weight", "attn_v.weight", {kv, hidden}, Fan(hidden));
  if (options.architecture == "qwen2") {
    add("self_attn.q_proj.bias", "attn_q.bias", {q}, kBias);
    add("self_attn.k_proj.bias", "attn_k.bias", {kv}, kBias);
    add("self_attn.v_proj.bias", "attn_v.bias", {kv}, kBias);
  }
  if (options.architecture == "qwen3") {
    const std::int64_t dims = options.head_dim;
    add("self_attn.q_norm.weight", "attn_q_norm.weight", {dims}, kNorm, 1);
    add("self_attn.k_norm.weight", "attn_k_norm.weight", {dims}, kNorm, 1);
  }
  add("self_attn.o_proj.weight", "attn_output.weight", {hidden, q}, Fan(q));
  add("post_attention_layernorm.weight", "ffn_norm.weight", {hidden}, kNorm, 1);
  add("mlp.gate_proj.weight", "ffn_gate.weight", {ffn, hidden}, Fan(hidden));
  add("mlp.up_proj.weight", "ffn_up.weight", {ffn, hidden}, Fan(hidden));
  add("mlp.down_proj.weight", "ffn_down.weight", {hidden, ffn}, Fan(ffn));
}

std::vector<TinyTensor> MakeLlamaWeights(const TinyModelOptions& options,
                                         int vocab_size) {
  const std::int64_t hidden = options.hidden;
  constexpr float kEmbedding = 1, kTiedEmbedding = 0.25f, kHead = 2.5f;
  TensorMaker maker(options.seed);
  maker.Add("model.embed_tokens.weight", "token_embd.weight",
            {vocab_size, hidden},
            options.tied_embeddings ? kTiedEmbedding : kEmbedding);
  maker.Add("model.norm.weight", "output_norm.weight", {hidden}, kNorm, 1);
  if (!options.tied_embeddings) {
    maker.Add("lm_head.weight", "output.weight", {vocab_size, hidden},
              kHead * Fan(hidden));
  }
  for (int i = 0; i < options.layers; ++i) MakeLayer(options, i, &maker);
  return maker.Take();
}

// Rows of rotary pairs from halves to side by side.
void PairRows(int head_dim, TinyTensor* tensor) {
  const std::vector<float> halves = tensor->values;
  const std::size_t cols = halves.size() / tensor->shape.front();
  const int half = head_dim / 2;
  for (std::int64_t row = 0; row < tensor->shape.front(); ++row) {
    const int within = static_cast<int>(row % head_dim);
    const std::int64_t to = row - within + 2 * (within % half) + within / half;
    for (std::size_t i = 0; i < cols; ++i) {
      tensor->values[to * cols + i] = halves[row * cols + i];
    }
  }
}

}  // namespace

std::vector<TinyTensor> MakeTinyWeights(const TinyModelOptions& options,
                                        int vocab_size) {
  std::vector<TinyTensor> tensors = IsHybrid(options)
                                        ? MakeHybridWeights(options, vocab_size)
                                        : MakeLlamaWeights(options, vocab_size);
  if (options.coarse) {
    for (TinyTensor& tensor : tensors) Coarsen(&tensor);
  }
  return tensors;
}

std::vector<TinyTensor> ToGgufForm(const TinyModelOptions& options,
                                   TinyTensor tensor) {
  if (IsHybrid(options)) return HybridToGgufForm(options, std::move(tensor));
  if (options.architecture == "llama" &&
      (tensor.gguf_name.ends_with("attn_q.weight") ||
       tensor.gguf_name.ends_with("attn_k.weight"))) {
    PairRows(options.head_dim, &tensor);
  }
  return {std::move(tensor)};
}

}  // namespace holdfast::model::testing
