#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/testing/tensor_maker.h"
#include "engine/model/testing/tiny_hybrid.h"
#include "kernels/portable_math.h"

namespace holdfast::model::testing {
namespace {

// Norms' weights lie around 0: the arithmetic adds 1.
constexpr float kNorm = 0.1f;

class Maker {
 public:
  Maker(const TinyModelOptions& options, int vocab_size)
      : options_(options),
        vocab_size_(vocab_size),
        hidden_(options.hidden),
        maker_(options.seed) {}

  std::vector<TinyTensor> Make() {
    const std::string model = "model.";
    constexpr float kEmbedding = 1, kTiedEmbedding = 0.25f, kHead = 2.5f;
    maker_.Add(model + "embed_tokens.weight", "token_embd.weight",
               {vocab_size_, hidden_},
               options_.tied_embeddings ? kTiedEmbedding : kEmbedding);
    maker_.Add(model + "norm.weight", "output_norm.weight", {hidden_}, kNorm);
    if (!options_.tied_embeddings) {
      maker_.Add("lm_head.weight", "output.weight", {vocab_size_, hidden_},
                 kHead * Fan(hidden_));
    }
    for (int i = 0; i < options_.layers; ++i) {
      hf_ = model + "layers." + std::to_string(i) + ".";
      gguf_ = "blk." + std::to_string(i) + ".";
      MakeLayer((i + 1) % options_.hybrid.attention_interval == 0);
    }
    MakeMtp();
    std::vector<TinyTensor> tensors = maker_.Take();
    if (options_.hybrid.nested) Nest(model, &tensors);
    return tensors;
  }

 private:
  void Add(const std::string& name, const std::string& gguf_name,
           std::vector<std::int64_t> shape, float deviation, float mean = 0) {
    maker_.Add(hf_ + name, gguf_ + gguf_name, std::move(shape), deviation,
               mean);
  }

  void MakeLayer(bool attention) {
    Add("input_layernorm.weight", "attn_norm.weight", {hidden_}, kNorm);
    if (attention) {
      MakeAttention();
    } else {
      MakeGdn();
    }
    Add("post_attention_layernorm.weight", "post_attention_norm.weight",
        {hidden_}, kNorm);
    if (options_.architecture == "qwen3_5") {
      MakeFeedForward("mlp.", "", options_.ffn);
    } else {
      MakeExperts();
    }
  }

  void MakeAttention() {
    const std::int64_t dim = options_.head_dim;
    const std::int64_t q = options_.heads * dim;
    const std::int64_t kv = options_.kv_heads * dim;
    Add("self_attn.q_proj.weight", "attn_q.weight", {2 * q, hidden_},
        1.6f * Fan(hidden_));
    Add("self_attn.k_proj.weight", "attn_k.weight", {kv, hidden_},
        Fan(hidden_));
    Add("self_attn.v_proj.weight", "attn_v.weight", {kv, hidden_},
        Fan(hidden_));
    Add("self_attn.q_norm.weight", "attn_q_norm.weight", {dim}, kNorm);
    Add("self_attn.k_norm.weight", "attn_k_norm.weight", {dim}, kNorm);
    Add("self_attn.o_proj.weight", "attn_output.weight", {hidden_, q},
        2 * Fan(q));
  }

  // Decays that reach from a few tokens to some hundreds.
  void MakeGdn() {
    const TinyHybridOptions& shape = options_.hybrid;
    const std::int64_t heads = shape.value_heads;
    const std::int64_t keys = std::int64_t{shape.key_heads} * shape.key_dim;
    const std::int64_t values = heads * shape.value_dim;
    const std::int64_t channels = 2 * keys + values;
    const float fan = Fan(hidden_);
    if (options_.architecture == "qwen3_next") {
      Add("linear_attn.in_proj_qkvz.weight", "", {channels + values, hidden_},
          fan);
      Add("linear_attn.in_proj_ba.weight", "", {2 * heads, hidden_}, fan);
    } else {
      Add("linear_attn.in_proj_qkv.weight", "attn_qkv.weight",
          {channels, hidden_}, fan);
      Add("linear_attn.in_proj_z.weight", "attn_gate.weight", {values, hidden_},
          fan);
      Add("linear_attn.in_proj_b.weight", "ssm_beta.weight", {heads, hidden_},
          fan);
      Add("linear_attn.in_proj_a.weight", "ssm_alpha.weight", {heads, hidden_},
          fan);
    }
    Add("linear_attn.conv1d.weight", "ssm_conv1d.weight", {channels, 1, 4},
        0.5f);
    Add("linear_attn.A_log", "ssm_a", {heads}, 1.2f, -3);
    Add("linear_attn.dt_bias", "ssm_dt.bias", {heads}, 0.5f);
    Add("linear_attn.norm.weight", "ssm_norm.weight", {shape.value_dim}, kNorm,
        1);
    Add("linear_attn.out_proj.weight", "ssm_out.weight", {hidden_, values},
        2 * Fan(values));
  }

  void MakeFeedForward(const std::string& of, const std::string& gguf_ending,
                       std::int64_t ffn) {
    const std::string ending = gguf_ending + ".weight";
    Add(of + "gate_proj.weight", "ffn_gate" + ending, {ffn, hidden_},
        Fan(hidden_));
    Add(of + "up_proj.weight", "ffn_up" + ending, {ffn, hidden_}, Fan(hidden_));
    Add(of + "down_proj.weight", "ffn_down" + ending, {hidden_, ffn}, Fan(ffn));
  }

  void MakeExperts() {
    const TinyHybridOptions& shape = options_.hybrid;
    const std::int64_t experts = shape.experts;
    const std::int64_t ffn = shape.expert_ffn;
    Add("mlp.gate.weight", "ffn_gate_inp.weight", {experts, hidden_},
        2 * Fan(hidden_));
    Add("mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight",
        {1, hidden_}, Fan(hidden_));
    MakeFeedForward("mlp.shared_expert.", "_shexp", shape.shared_ffn);
    if (shape.fused_experts) {
      Add("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight",
          {experts, 2 * ffn, hidden_}, Fan(hidden_));
      Add("mlp.experts.down_proj", "ffn_down_exps.weight",
          {experts, hidden_, ffn}, Fan(ffn));
      return;
    }
    for (int e = 0; e < experts; ++e) {
      MakeFeedForward("mlp.experts." + std::to_string(e) + ".", "", ffn);
    }
  }

  // Names as inside a model with images, and a tower that text does not need.
  void Nest(const std::string& model, std::vector<TinyTensor>* tensors) {
    for (TinyTensor& tensor : *tensors) {
      if (!tensor.name.starts_with(model)) continue;
      tensor.name.insert(model.size(), "language_model.");
    }
    maker_.Add("model.visual.patch_embed.proj.weight", "", {8, 8}, 1);
    for (TinyTensor& tensor : maker_.Take()) {
      tensors->push_back(std::move(tensor));
    }
  }

  void MakeMtp() {
    if (options_.hybrid.mtp_layers == 0) return;
    hf_ = "mtp.";
    gguf_ = "blk." + std::to_string(options_.layers) + ".nextn.";
    Add("fc.weight", "eh_proj.weight", {hidden_, 2 * hidden_},
        Fan(2 * hidden_));
    Add("pre_fc_norm_embedding.weight", "enorm.weight", {hidden_}, kNorm);
    Add("pre_fc_norm_hidden.weight", "hnorm.weight", {hidden_}, kNorm);
    Add("norm.weight", "shared_head_norm.weight", {hidden_}, kNorm);
    for (int i = 0; i < options_.hybrid.mtp_layers; ++i) {
      hf_ = "mtp.layers." + std::to_string(i) + ".";
      gguf_ = "blk." + std::to_string(options_.layers + i) + ".";
      MakeLayer(/*attention=*/true);
    }
  }

  const TinyModelOptions& options_;
  const std::int64_t vocab_size_;
  const std::int64_t hidden_;
  TensorMaker maker_;
  std::string hf_, gguf_;  // prefixes of the names
};

// Runs of `width` numbers, a run a value head, from `first` on: the heads of a
// key head side by side become the first heads of all key heads, then the
// second ones.
void TileHeads(const TinyHybridOptions& shape, std::size_t first,
               std::size_t width, std::vector<float>* values) {
  const std::vector<float> grouped = *values;
  const int ratio = shape.value_heads / shape.key_heads;
  for (int p = 0; p < shape.value_heads; ++p) {
    const int from = p % shape.key_heads * ratio + p / shape.key_heads;
    for (std::size_t i = 0; i < width; ++i) {
      (*values)[first + p * width + i] = grouped[first + from * width + i];
    }
  }
}

// Norms, decay rates, shapes and the order of heads.
void ChangeForm(const TinyModelOptions& options, TinyTensor* tensor) {
  const TinyHybridOptions& shape = options.hybrid;
  const std::string& name = tensor->gguf_name;
  std::vector<float>& values = tensor->values;
  const std::size_t cols = tensor->shape.back();
  const std::size_t keys =
      2 * std::size_t(shape.key_heads) * shape.key_dim;  // of q and k
  const std::size_t dim = shape.value_dim;
  if (name.ends_with("norm.weight") && !name.ends_with("ssm_norm.weight")) {
    for (float& value : values) value += 1.0f;
  } else if (name.ends_with("ssm_a")) {
    for (float& value : values) {
      value = -static_cast<float>(kernels::portable::Exp(value));
    }
    TileHeads(shape, 0, 1, &values);
  } else if (name.ends_with("ssm_dt.bias")) {
    TileHeads(shape, 0, 1, &values);
  } else if (name.ends_with("ssm_conv1d.weight")) {
    tensor->shape = {tensor->shape.front(), tensor->shape.back()};
    TileHeads(shape, keys * cols, dim * cols, &values);
  } else if (name.ends_with("attn_qkv.weight")) {
    TileHeads(shape, keys * cols, dim * cols, &values);
  } else if (name.ends_with("attn_gate.weight")) {
    TileHeads(shape, 0, dim * cols, &values);
  } else if (name.ends_with("ssm_beta.weight") ||
             name.ends_with("ssm_alpha.weight")) {
    TileHeads(shape, 0, cols, &values);
  } else if (name.ends_with("ssm_out.weight")) {
    for (std::int64_t row = 0; row < tensor->shape.front(); ++row) {
      TileHeads(shape, row * cols, dim, &values);
    }
  }
}

// [expert][gate rows, up rows][cols] becomes two tensors.
std::vector<TinyTensor> SplitGateUp(const TinyTensor& both) {
  std::vector<TinyTensor> parts(2);
  const std::size_t half = both.values.size() / both.shape[0] / 2;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].gguf_name = both.gguf_name;
    const std::string joined = "gate_up";
    parts[i].gguf_name.replace(both.gguf_name.find(joined), joined.size(),
                               i == 0 ? "gate" : "up");
    parts[i].shape = {both.shape[0], both.shape[1] / 2, both.shape[2]};
    for (std::int64_t e = 0; e < both.shape[0]; ++e) {
      const auto first = both.values.begin() + (2 * e + i) * half;
      parts[i].values.insert(parts[i].values.end(), first, first + half);
    }
  }
  return parts;
}

}  // namespace

std::vector<TinyTensor> MakeHybridWeights(const TinyModelOptions& options,
                                          int vocab_size) {
  return Maker(options, vocab_size).Make();
}

std::vector<TinyTensor> HybridToGgufForm(const TinyModelOptions& options,
                                         TinyTensor tensor) {
  if (tensor.gguf_name.ends_with("ffn_gate_up_exps.weight")) {
    return SplitGateUp(tensor);
  }
  ChangeForm(options, &tensor);
  return {std::move(tensor)};
}

}  // namespace holdfast::model::testing
