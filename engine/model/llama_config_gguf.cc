// LlamaConfig from GGUF metadata.
#include <string>
#include <string_view>

#include "engine/model/gguf_config_reader.h"
#include "engine/model/llama_config.h"
#include "engine/model/message.h"

namespace holdfast::model {
namespace {

using kernels::Status;

// Keys below "<architecture>." that are read here, or say nothing about the
// arithmetic.
constexpr std::string_view kKnownKeys[] = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_used_count",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "vocab_size",
};

class Reader {
 public:
  Reader(const GgufFile& file, const std::string& architecture)
      : keys_(file, architecture) {
    config_.architecture = architecture;
  }

  kernels::StatusOr<LlamaConfig> Read() {
    HF_RETURN_IF_ERROR(keys_.RefuseUnknown(kKnownKeys));
    for (const char* key :
         {"expert_count", "expert_used_count", "attention.sliding_window"}) {
      HF_RETURN_IF_ERROR(keys_.RefuseSet(key));
    }
    HF_RETURN_IF_ERROR(ReadSizes());
    HF_RETURN_IF_ERROR(ReadHeads());
    HF_RETURN_IF_ERROR(ReadRope());
    ReadTensors();
    HF_RETURN_IF_ERROR(CheckLlamaConfig(config_, keys_.file().path()));
    return config_;
  }

 private:
  Status ReadSizes() {
    HF_ASSIGN_OR_RETURN(config_.layers, keys_.NeededSize("block_count"));
    HF_ASSIGN_OR_RETURN(config_.max_context,
                        keys_.NeededSize("context_length"));
    HF_ASSIGN_OR_RETURN(config_.hidden, keys_.NeededSize("embedding_length"));
    HF_ASSIGN_OR_RETURN(config_.ffn, keys_.NeededSize("feed_forward_length"));
    HF_ASSIGN_OR_RETURN(config_.vocab_size, keys_.VocabSize());
    HF_ASSIGN_OR_RETURN(const double eps,
                        keys_.NeededNumber("attention.layer_norm_rms_epsilon"));
    config_.rms_eps = static_cast<float>(eps);
    return kernels::OkStatus();
  }

  Status ReadHeads() {
    HF_ASSIGN_OR_RETURN(config_.heads,
                        keys_.NeededSize("attention.head_count"));
    HF_ASSIGN_OR_RETURN(const auto kv_heads,
                        keys_.Size("attention.head_count_kv"));
    config_.kv_heads = kv_heads.value_or(config_.heads);
    HF_ASSIGN_OR_RETURN(const auto key_length,
                        keys_.Size("attention.key_length"));
    HF_ASSIGN_OR_RETURN(const auto value_length,
                        keys_.Size("attention.value_length"));
    if (config_.heads < 1 || config_.kv_heads < 1) {
      return kernels::InvalidArgument(Message(keys_.file().path(), ": ",
                                              config_.heads, " heads and ",
                                              config_.kv_heads, " KV heads"));
    }
    config_.head_dim = key_length.value_or(config_.hidden / config_.heads);
    if (value_length.value_or(config_.head_dim) != config_.head_dim) {
      return keys_.Refused("attention.value_length",
                           std::to_string(*value_length));
    }
    return kernels::OkStatus();
  }

  Status ReadRope() {
    HF_ASSIGN_OR_RETURN(const auto dims, keys_.Size("rope.dimension_count"));
    if (dims.value_or(config_.head_dim) != config_.head_dim) {
      return keys_.Refused("rope.dimension_count", std::to_string(*dims));
    }
    const GgufFile& file = keys_.file();
    HF_ASSIGN_OR_RETURN(const auto base,
                        file.Number(keys_.Key("rope.freq_base")));
    config_.rope.theta = base.value_or(config_.rope.theta);
    HF_ASSIGN_OR_RETURN(const auto type,
                        file.String(keys_.Key("rope.scaling.type")));
    HF_ASSIGN_OR_RETURN(const auto factor,
                        file.Number(keys_.Key("rope.scaling.factor")));
    HF_ASSIGN_OR_RETURN(const auto old_factor,
                        file.Number(keys_.Key("rope.scale_linear")));
    if (type && *type != "none" && *type != "linear") {
      return keys_.Refused("rope.scaling.type", std::string(*type));
    }
    if (type && *type == "none") return kernels::OkStatus();
    config_.rope.factor = factor.value_or(old_factor.value_or(1));
    if (config_.rope.factor != 1) {
      config_.rope.scaling = RopeConfig::Scaling::kLinear;
    }
    return kernels::OkStatus();
  }

  // What the metadata leaves to the presence of tensors.
  void ReadTensors() {
    config_.qkv_bias =
        config_.architecture == "qwen2" || keys_.HasTensor("blk.0.attn_q.bias");
    config_.output_bias = keys_.HasTensor("blk.0.attn_output.bias");
    config_.qk_norm = config_.architecture == "qwen3";
    config_.tied_embeddings = !keys_.HasTensor("output.weight");
    config_.rope_divisors = keys_.HasTensor("rope_freqs.weight");
    config_.paired_rows = config_.architecture == "llama";
  }

  GgufConfigReader keys_;
  LlamaConfig config_;
};

}  // namespace

kernels::StatusOr<LlamaConfig> LlamaConfigFromGguf(const GgufFile& file) {
  HF_ASSIGN_OR_RETURN(const std::string architecture, GgufArchitecture(file));
  return Reader(file, architecture).Read();
}

}  // namespace holdfast::model
