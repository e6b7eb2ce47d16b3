#include "engine/model/llama_weights.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "engine/model/message.h"
#include "engine/model/weight_packer.h"

namespace holdfast::model {
namespace {

using kernels::Status;
using kernels::StatusOr;
using kernels::WeightTensor;

// Packed row n (pairs in halves: h, half, j) is row (h, j, half) of a file
// whose rotary pairs lie side by side.
std::vector<std::int32_t> PairedRowOrder(int heads, int head_dim) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(heads) * head_dim);
  const int half = head_dim / 2;
  for (int n = 0; n < heads * head_dim; ++n) {
    const int head = n / head_dim;
    const int within = n % head_dim;
    order[n] = head * head_dim + 2 * (within % half) + within / half;
  }
  return order;
}

class Loader {
 public:
  Loader(const LlamaConfig& config, const LlamaNames& names, TensorMap* tensors,
         kernels::Backend* backend)
      : config_(config),
        names_(names),
        packer_(tensors, backend),
        tensors_(*tensors) {
    if (config.paired_rows) {
      q_order_ = PairedRowOrder(config.heads, config.head_dim);
      k_order_ = PairedRowOrder(config.kv_heads, config.head_dim);
    }
  }

  StatusOr<LlamaWeights> Load() {
    HF_RETURN_IF_ERROR(LoadEnds());
    weights_.layers.resize(config_.layers);
    for (int i = 0; i < config_.layers; ++i) {
      prefix_ = names_.layer_prefix + std::to_string(i) + ".";
      if (names_.layer_frequencies != nullptr) {
        tensors_.Ignore(prefix_ + names_.layer_frequencies);
      }
      HF_RETURN_IF_ERROR(LoadAttention(&weights_.layers[i]));
      HF_RETURN_IF_ERROR(LoadFeedForward(&weights_.layers[i]));
    }
    if (const auto unused = tensors_.FirstUnused()) {
      return kernels::InvalidArgument(
          Message(tensors_.source(), ": tensor ", *unused, " is not part of a ",
                  config_.architecture, " model with this configuration"));
    }
    weights_.bytes = packer_.bytes();
    return std::move(weights_);
  }

 private:
  std::string LayerName(const char* name, const char* ending) const {
    return prefix_ + name + ending;
  }

  Status LoadEnds() {
    HF_ASSIGN_OR_RETURN(weights_.embedding,
                        packer_.PackMatrix(names_.embedding, config_.vocab_size,
                                           config_.hidden));
    HF_ASSIGN_OR_RETURN(
        weights_.final_norm,
        packer_.UploadVector(names_.final_norm, config_.hidden));
    if (config_.tied_embeddings) {
      tensors_.Ignore(names_.head);  // a copy that some exports carry
    } else {
      HF_ASSIGN_OR_RETURN(
          weights_.head,
          packer_.PackMatrix(names_.head, config_.vocab_size, config_.hidden));
    }
    if (!config_.rope_divisors) return kernels::OkStatus();
    HF_ASSIGN_OR_RETURN(
        const WeightTensor divisors,
        tensors_.TakeVector(names_.divisors, config_.head_dim / 2));
    HF_RETURN_IF_ERROR(
        AppendFloats(tensors_.source(), divisors, &weights_.rope_divisors));
    for (float divisor : weights_.rope_divisors) {
      if (!(divisor > 0)) {
        return kernels::InvalidArgument(
            Message(tensors_.source(), ": tensor ", names_.divisors, " holds ",
                    divisor, ", which is not positive"));
      }
    }
    return kernels::OkStatus();
  }

  Status LoadAttention(LlamaLayer* layer) {
    const int q_rows = config_.heads * config_.head_dim;
    const int kv_rows = config_.kv_heads * config_.head_dim;
    HF_ASSIGN_OR_RETURN(
        layer->attention_norm,
        packer_.UploadVector(LayerName(names_.attention_norm, ".weight"),
                             config_.hidden));
    std::array<WeightTensor, 3> parts;
    HF_ASSIGN_OR_RETURN(
        parts[0], tensors_.TakeMatrix(LayerName(names_.q, ".weight"), q_rows,
                                      config_.hidden));
    HF_ASSIGN_OR_RETURN(
        parts[1], tensors_.TakeMatrix(LayerName(names_.k, ".weight"), kv_rows,
                                      config_.hidden));
    HF_ASSIGN_OR_RETURN(
        parts[2], tensors_.TakeMatrix(LayerName(names_.v, ".weight"), kv_rows,
                                      config_.hidden));
    parts[0].row_order = q_order_;
    parts[1].row_order = k_order_;
    HF_ASSIGN_OR_RETURN(layer->qkv, packer_.Pack(parts));
    if (config_.qkv_bias) HF_RETURN_IF_ERROR(LoadQkvBias(layer));
    if (config_.qk_norm) {
      HF_ASSIGN_OR_RETURN(
          layer->q_norm,
          packer_.UploadVector(LayerName(names_.q_norm, ".weight"),
                               config_.head_dim));
      HF_ASSIGN_OR_RETURN(
          layer->k_norm,
          packer_.UploadVector(LayerName(names_.k_norm, ".weight"),
                               config_.head_dim));
    }
    HF_ASSIGN_OR_RETURN(layer->output,
                        packer_.PackMatrix(LayerName(names_.output, ".weight"),
                                           config_.hidden, q_rows));
    if (!config_.output_bias) return kernels::OkStatus();
    HF_ASSIGN_OR_RETURN(layer->output_bias,
                        packer_.UploadVector(LayerName(names_.output, ".bias"),
                                             config_.hidden));
    return kernels::OkStatus();
  }

  // One vector, as the product's output has it.
  Status LoadQkvBias(LlamaLayer* layer) {
    const struct {
      const char* name;
      int heads;
      const std::vector<std::int32_t>& order;
    } parts[] = {{names_.q, config_.heads, q_order_},
                 {names_.k, config_.kv_heads, k_order_},
                 {names_.v, config_.kv_heads, no_order_}};
    std::vector<float> bias;
    for (const auto& part : parts) {
      HF_ASSIGN_OR_RETURN(WeightTensor tensor,
                          tensors_.TakeVector(LayerName(part.name, ".bias"),
                                              part.heads * config_.head_dim));
      tensor.row_order = part.order;
      HF_RETURN_IF_ERROR(AppendFloats(tensors_.source(), tensor, &bias));
    }
    HF_ASSIGN_OR_RETURN(
        layer->qkv_bias,
        packer_.UploadFloats(LayerName(names_.q, ".bias"), bias));
    return kernels::OkStatus();
  }

  Status LoadFeedForward(LlamaLayer* layer) {
    HF_ASSIGN_OR_RETURN(
        layer->ffn_norm,
        packer_.UploadVector(LayerName(names_.ffn_norm, ".weight"),
                             config_.hidden));
    std::array<WeightTensor, 2> parts;
    HF_ASSIGN_OR_RETURN(parts[0],
                        tensors_.TakeMatrix(LayerName(names_.gate, ".weight"),
                                            config_.ffn, config_.hidden));
    HF_ASSIGN_OR_RETURN(parts[1],
                        tensors_.TakeMatrix(LayerName(names_.up, ".weight"),
                                            config_.ffn, config_.hidden));
    HF_ASSIGN_OR_RETURN(layer->gate_up, packer_.Pack(parts));
    HF_ASSIGN_OR_RETURN(layer->down,
                        packer_.PackMatrix(LayerName(names_.down, ".weight"),
                                           config_.hidden, config_.ffn));
    return kernels::OkStatus();
  }

  const LlamaConfig& config_;
  const LlamaNames& names_;
  WeightPacker packer_;
  TensorMap& tensors_;
  std::vector<std::int32_t> q_order_, k_order_;
  const std::vector<std::int32_t> no_order_;
  std::string prefix_;  // of the layer being loaded
  LlamaWeights weights_;
};

}  // namespace

const LlamaNames kGgufLlamaNames = {
    .embedding = "token_embd.weight",
    .final_norm = "output_norm.weight",
    .head = "output.weight",
    .divisors = "rope_freqs.weight",
    .layer_prefix = "blk.",
    .attention_norm = "attn_norm",
    .q = "attn_q",
    .k = "attn_k",
    .v = "attn_v",
    .q_norm = "attn_q_norm",
    .k_norm = "attn_k_norm",
    .output = "attn_output",
    .ffn_norm = "ffn_norm",
    .gate = "ffn_gate",
    .up = "ffn_up",
    .down = "ffn_down",
    .layer_frequencies = nullptr,
};

const LlamaNames kHfLlamaNames = {
    .embedding = "model.embed_tokens.weight",
    .final_norm = "model.norm.weight",
    .head = "lm_head.weight",
    .divisors = nullptr,
    .layer_prefix = "model.layers.",
    .attention_norm = "input_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .output = "self_attn.o_proj",
    .ffn_norm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .layer_frequencies = "self_attn.rotary_emb.inv_freq",
};

StatusOr<LlamaWeights> LoadLlamaWeights(const LlamaConfig& config,
                                        const LlamaNames& names,
                                        TensorMap* tensors,
                                        kernels::Backend* backend) {
  return Loader(config, names, tensors, backend).Load();
}

}  // namespace holdfast::model
