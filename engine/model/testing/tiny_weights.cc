#include "engine/model/testing/tiny_weights.h"

#include <cmath>
#include <string_view>
#include <utility>

namespace holdfast::model::testing {
namespace {

class Random {
 public:
  Random(std::uint64_t seed, std::string_view name) : state_(seed) {
    for (char c : name) {
      state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    }
  }

  // About normal: mean 0, deviation 1, within 3.5. Exact in float up to the
  // last product, so equal on every machine.
  float Next() {
    constexpr float kRoot3 = 1.7320508f;
    float sum = -2;
    for (int i = 0; i < 4; ++i) {
      sum += static_cast<float>(NextBits() >> 44) * 0x1p-20f;
    }
    return sum * kRoot3;
  }

 private:
  std::uint64_t NextBits() {  // splitmix64
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

class Maker {
 public:
  Maker(const TinyModelOptions& options, int vocab_size)
      : options_(options), vocab_size_(vocab_size) {}

  std::vector<TinyTensor> Make() {
    const std::int64_t hidden = options_.hidden;
    constexpr float kEmbedding = 1, kTiedEmbedding = 0.25f, kHead = 2.5f;
    Add("model.embed_tokens.weight", "token_embd.weight", {vocab_size_, hidden},
        options_.tied_embeddings ? kTiedEmbedding : kEmbedding);
    Add("model.norm.weight", "output_norm.weight", {hidden}, kNorm);
    if (!options_.tied_embeddings) {
      Add("lm_head.weight", "output.weight", {vocab_size_, hidden},
          kHead * Fan(hidden));
    }
    for (int i = 0; i < options_.layers; ++i) MakeLayer(i);
    return std::move(tensors_);
  }

 private:
  static constexpr float kNorm = -1;  // a scale that says "near one"
  static constexpr float kBias = 0.3f;

  static float Fan(std::int64_t inputs) {
    return 1 / std::sqrt(static_cast<float>(inputs));
  }

  void Add(std::string name, std::string gguf_name,
           std::vector<std::int64_t> shape, float scale) {
    TinyTensor tensor;
    std::size_t count = 1;
    for (std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    Random random(options_.seed, name);
    tensor.values.resize(count);
    for (float& value : tensor.values) {
      value = scale == kNorm ? 1 + 0.1f * random.Next() : scale * random.Next();
    }
    tensor.name = std::move(name);
    tensor.gguf_name = std::move(gguf_name);
    tensor.shape = std::move(shape);
    tensors_.push_back(std::move(tensor));
  }

  void MakeLayer(int index) {
    const std::int64_t hidden = options_.hidden;
    const std::int64_t ffn = options_.ffn;
    const std::int64_t q = std::int64_t{options_.heads} * options_.head_dim;
    const std::int64_t kv = std::int64_t{options_.kv_heads} * options_.head_dim;
    constexpr float kQueryKey = 1.6f;
    const std::string hf = "model.layers." + std::to_string(index) + ".";
    const std::string gguf = "blk." + std::to_string(index) + ".";
    const auto add = [&](const char* hf_name, const char* gguf_name,
                         std::vector<std::int64_t> shape, float scale) {
      Add(hf + hf_name, gguf + gguf_name, std::move(shape), scale);
    };
    add("input_layernorm.weight", "attn_norm.weight", {hidden}, kNorm);
    add("self_attn.q_proj.weight", "attn_q.weight", {q, hidden},
        kQueryKey * Fan(hidden));
    add("self_attn.k_proj.weight", "attn_k.weight", {kv, hidden},
        kQueryKey * Fan(hidden));
    add("self_attn.v_proj.weight", "attn_v.weight", {kv, hidden}, Fan(hidden));
    if (options_.architecture == "qwen2") {
      add("self_attn.q_proj.bias", "attn_q.bias", {q}, kBias);
      add("self_attn.k_proj.bias", "attn_k.bias", {kv}, kBias);
      add("self_attn.v_proj.bias", "attn_v.bias", {kv}, kBias);
    }
    if (options_.architecture == "qwen3") {
      const std::int64_t dims = options_.head_dim;
      add("self_attn.q_norm.weight", "attn_q_norm.weight", {dims}, kNorm);
      add("self_attn.k_norm.weight", "attn_k_norm.weight", {dims}, kNorm);
    }
    add("self_attn.o_proj.weight", "attn_output.weight", {hidden, q}, Fan(q));
    add("post_attention_layernorm.weight", "ffn_norm.weight", {hidden}, kNorm);
    add("mlp.gate_proj.weight", "ffn_gate.weight", {ffn, hidden}, Fan(hidden));
    add("mlp.up_proj.weight", "ffn_up.weight", {ffn, hidden}, Fan(hidden));
    add("mlp.down_proj.weight", "ffn_down.weight", {hidden, ffn}, Fan(ffn));
  }

  const TinyModelOptions& options_;
  const std::int64_t vocab_size_;
  std::vector<TinyTensor> tensors_;
};

}  // namespace

std::vector<TinyTensor> MakeTinyWeights(const TinyModelOptions& options,
                                        int vocab_size) {
  return Maker(options, vocab_size).Make();
}

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

}  // namespace holdfast::model::testing
