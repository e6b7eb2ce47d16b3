// LlamaConfig from GGUF metadata.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "engine/model/llama_config.h"
#include "engine/model/message.h"

namespace holdfast::model {
namespace {

using kernels::InvalidArgument;
using kernels::Status;
using kernels::Unimplemented;

// Keys below "<architecture>." that are read here, or say nothing about the
// arithmetic. Any other is refused: all of this namespace describes the model.
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
  Reader(const GgufFile& file, std::string architecture)
      : file_(file), prefix_(architecture + ".") {
    config_.architecture = std::move(architecture);
  }

  kernels::StatusOr<LlamaConfig> Read() {
    HF_RETURN_IF_ERROR(RefuseUnknown());
    HF_RETURN_IF_ERROR(ReadSizes());
    HF_RETURN_IF_ERROR(ReadHeads());
    HF_RETURN_IF_ERROR(ReadRope());
    HF_RETURN_IF_ERROR(ReadTensors());
    HF_RETURN_IF_ERROR(CheckLlamaConfig(config_, file_.path()));
    return config_;
  }

 private:
  Status Refused(const std::string& key, const std::string& value) const {
    return Unimplemented(Message(file_.path(), ": metadata key ", prefix_, key,
                                 value.empty() ? "" : " = ", value,
                                 " is not implemented"));
  }

  Status RefuseUnknown() const {
    for (const std::string& key : file_.keys()) {
      if (!key.starts_with(prefix_)) continue;
      const std::string_view name =
          std::string_view(key).substr(prefix_.size());
      if (std::find(std::begin(kKnownKeys), std::end(kKnownKeys), name) ==
          std::end(kKnownKeys)) {
        return Refused(std::string(name), "");
      }
    }
    for (const char* key :
         {"expert_count", "expert_used_count", "attention.sliding_window"}) {
      HF_ASSIGN_OR_RETURN(const auto value, file_.Integer(prefix_ + key));
      if (value.value_or(0) != 0) return Refused(key, std::to_string(*value));
    }
    return kernels::OkStatus();
  }

  kernels::StatusOr<std::optional<int>> Size(const std::string& key) const {
    HF_ASSIGN_OR_RETURN(const auto value, file_.Integer(prefix_ + key));
    if (!value) return std::optional<int>();
    if (*value < 0 || *value > std::numeric_limits<int>::max()) {
      return InvalidArgument(Message(file_.path(), ": metadata key ", prefix_,
                                     key, " is ", *value));
    }
    return std::optional<int>(static_cast<int>(*value));
  }

  kernels::StatusOr<int> NeededSize(const std::string& key) const {
    HF_ASSIGN_OR_RETURN(const auto value, Size(key));
    if (!value) {
      return InvalidArgument(Message(file_.path(), ": metadata key ", prefix_,
                                     key, " is missing"));
    }
    return *value;
  }

  Status ReadSizes() {
    HF_ASSIGN_OR_RETURN(config_.layers, NeededSize("block_count"));
    HF_ASSIGN_OR_RETURN(config_.max_context, NeededSize("context_length"));
    HF_ASSIGN_OR_RETURN(config_.hidden, NeededSize("embedding_length"));
    HF_ASSIGN_OR_RETURN(config_.ffn, NeededSize("feed_forward_length"));
    HF_ASSIGN_OR_RETURN(const auto vocab, Size("vocab_size"));
    HF_ASSIGN_OR_RETURN(const auto* tokens,
                        file_.Strings("tokenizer.ggml.tokens"));
    if (vocab) {
      config_.vocab_size = *vocab;
    } else if (tokens != nullptr) {
      config_.vocab_size = static_cast<int>(std::min<std::size_t>(
          tokens->size(), std::numeric_limits<int>::max()));
    }
    const std::string key = prefix_ + "attention.layer_norm_rms_epsilon";
    HF_ASSIGN_OR_RETURN(const auto eps, file_.Number(key));
    if (!eps) {
      return InvalidArgument(
          Message(file_.path(), ": metadata key ", key, " is missing"));
    }
    config_.rms_eps = static_cast<float>(*eps);
    return kernels::OkStatus();
  }

  Status ReadHeads() {
    HF_ASSIGN_OR_RETURN(config_.heads, NeededSize("attention.head_count"));
    HF_ASSIGN_OR_RETURN(const auto kv_heads, Size("attention.head_count_kv"));
    config_.kv_heads = kv_heads.value_or(config_.heads);
    HF_ASSIGN_OR_RETURN(const auto key_length, Size("attention.key_length"));
    HF_ASSIGN_OR_RETURN(const auto value_length,
                        Size("attention.value_length"));
    if (config_.heads < 1 || config_.kv_heads < 1) {
      return InvalidArgument(Message(file_.path(), ": ", config_.heads,
                                     " heads and ", config_.kv_heads,
                                     " KV heads"));
    }
    config_.head_dim = key_length.value_or(config_.hidden / config_.heads);
    if (value_length.value_or(config_.head_dim) != config_.head_dim) {
      return Refused("attention.value_length", std::to_string(*value_length));
    }
    return kernels::OkStatus();
  }

  Status ReadRope() {
    HF_ASSIGN_OR_RETURN(const auto dims, Size("rope.dimension_count"));
    if (dims.value_or(config_.head_dim) != config_.head_dim) {
      return Refused("rope.dimension_count", std::to_string(*dims));
    }
    HF_ASSIGN_OR_RETURN(const auto base,
                        file_.Number(prefix_ + "rope.freq_base"));
    config_.rope.theta = base.value_or(config_.rope.theta);
    HF_ASSIGN_OR_RETURN(const auto type,
                        file_.String(prefix_ + "rope.scaling.type"));
    HF_ASSIGN_OR_RETURN(const auto factor,
                        file_.Number(prefix_ + "rope.scaling.factor"));
    HF_ASSIGN_OR_RETURN(const auto old_factor,
                        file_.Number(prefix_ + "rope.scale_linear"));
    if (type && *type != "none" && *type != "linear") {
      return Refused("rope.scaling.type", std::string(*type));
    }
    if (type && *type == "none") return kernels::OkStatus();
    config_.rope.factor = factor.value_or(old_factor.value_or(1));
    if (config_.rope.factor != 1) {
      config_.rope.scaling = RopeConfig::Scaling::kLinear;
    }
    return kernels::OkStatus();
  }

  // What the metadata leaves to the presence of tensors.
  Status ReadTensors() {
    const auto has = [&](std::string_view name) {
      return std::any_of(file_.tensors().begin(), file_.tensors().end(),
                         [&](const FileTensor& t) { return t.name == name; });
    };
    config_.qkv_bias =
        config_.architecture == "qwen2" || has("blk.0.attn_q.bias");
    config_.output_bias = has("blk.0.attn_output.bias");
    config_.qk_norm = config_.architecture == "qwen3";
    config_.tied_embeddings = !has("output.weight");
    config_.rope_divisors = has("rope_freqs.weight");
    config_.paired_rows = config_.architecture == "llama";
    return kernels::OkStatus();
  }

  const GgufFile& file_;
  std::string prefix_;
  LlamaConfig config_;
};

}  // namespace

kernels::StatusOr<LlamaConfig> LlamaConfigFromGguf(const GgufFile& file) {
  HF_ASSIGN_OR_RETURN(const auto architecture,
                      file.String("general.architecture"));
  if (!architecture) {
    return InvalidArgument(
        Message(file.path(), ": metadata key general.architecture is missing"));
  }
  if (!IsLlamaArchitecture(std::string(*architecture))) {
    return Unimplemented(Message(file.path(), ": unknown architecture '",
                                 *architecture,
                                 "'; known: ", kLlamaArchitectures));
  }
  HF_ASSIGN_OR_RETURN(const auto type, file.String("general.type"));
  if (type.value_or("model") != "model") {
    return Unimplemented(
        Message(file.path(), ": general.type is '", *type, "', not 'model'"));
  }
  HF_ASSIGN_OR_RETURN(const auto parts, file.Integer("split.count"));
  if (parts.value_or(1) > 1) {
    return Unimplemented(Message(file.path(), ": split.count is ", *parts,
                                 "; join the parts into one file"));
  }
  return Reader(file, std::string(*architecture)).Read();
}

}  // namespace holdfast::model
