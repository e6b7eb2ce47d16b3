// Qwen35Config from GGUF metadata, as converters write it for `qwen35` and
// `qwen35moe`.
#include <string>
#include <string_view>
#include <utility>

#include "engine/model/gguf_config_reader.h"
#include "engine/model/message.h"
#include "engine/model/qwen35/config.h"

namespace holdfast::model {
namespace {

using kernels::Status;
using kernels::StatusOr;

// Keys below "<architecture>." that are read here, or say nothing about the
// arithmetic of text (rope.dimension_sections: positions of images).
constexpr std::string_view kKnownKeys[] = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_feed_forward_length",
    "expert_shared_feed_forward_length",
    "expert_used_count",
    "feed_forward_length",
    "full_attention_interval",
    "nextn_predict_layers",
    "rope.dimension_count",
    "rope.dimension_sections",
    "rope.freq_base",
    "ssm.conv_kernel",
    "ssm.group_count",
    "ssm.inner_size",
    "ssm.state_size",
    "ssm.time_step_rank",
    "vocab_size",
};

class Reader {
 public:
  Reader(const GgufFile& file, const std::string& architecture)
      : keys_(file, architecture), is_moe_(architecture == "qwen35moe") {
    config_.architecture = is_moe_ ? "qwen3_5_moe" : "qwen3_5";
  }

  StatusOr<Qwen35Config> Read() {
    HF_RETURN_IF_ERROR(keys_.RefuseUnknown(kKnownKeys));
    HF_RETURN_IF_ERROR(ReadSizes());
    HF_RETURN_IF_ERROR(ReadLayers());
    HF_RETURN_IF_ERROR(ReadAttention());
    HF_RETURN_IF_ERROR(ReadGdn());
    HF_RETURN_IF_ERROR(ReadFeedForward());
    config_.tied_embeddings = !keys_.HasTensor("output.weight");
    HF_RETURN_IF_ERROR(CheckQwen35Config(config_, keys_.file().path()));
    return std::move(config_);
  }

 private:
  Status ReadSizes() {
    HF_ASSIGN_OR_RETURN(config_.max_context,
                        keys_.NeededSize("context_length"));
    HF_ASSIGN_OR_RETURN(config_.hidden, keys_.NeededSize("embedding_length"));
    HF_ASSIGN_OR_RETURN(config_.vocab_size, keys_.VocabSize());
    HF_ASSIGN_OR_RETURN(const double eps,
                        keys_.NeededNumber("attention.layer_norm_rms_epsilon"));
    config_.rms_eps = static_cast<float>(eps);
    return kernels::OkStatus();
  }

  // block_count counts the MTP layers too.
  Status ReadLayers() {
    HF_ASSIGN_OR_RETURN(const int blocks, keys_.NeededSize("block_count"));
    HF_ASSIGN_OR_RETURN(const auto mtp, keys_.Size("nextn_predict_layers"));
    HF_ASSIGN_OR_RETURN(const auto interval,
                        keys_.Size("full_attention_interval"));
    constexpr int kMaxBlocks = 1 << 12;
    if (blocks > kMaxBlocks || mtp.value_or(0) >= blocks) {
      return keys_.Refused("block_count", std::to_string(blocks));
    }
    if (interval == 0) return keys_.Refused("full_attention_interval", "0");
    config_.layers = blocks - mtp.value_or(0);
    for (int i = 0; i < config_.layers; ++i) {
      config_.attention.push_back((i + 1) % interval.value_or(4) == 0);
    }
    config_.sparse.assign(config_.layers, is_moe_);
    return kernels::OkStatus();
  }

  Status ReadAttention() {
    HF_ASSIGN_OR_RETURN(config_.heads,
                        keys_.NeededSize("attention.head_count"));
    HF_ASSIGN_OR_RETURN(config_.kv_heads,
                        keys_.NeededSize("attention.head_count_kv"));
    HF_ASSIGN_OR_RETURN(config_.head_dim,
                        keys_.NeededSize("attention.key_length"));
    HF_ASSIGN_OR_RETURN(const auto value_length,
                        keys_.Size("attention.value_length"));
    if (value_length.value_or(config_.head_dim) != config_.head_dim) {
      return keys_.Refused("attention.value_length",
                           std::to_string(*value_length));
    }
    HF_ASSIGN_OR_RETURN(config_.rotary_dims,
                        keys_.NeededSize("rope.dimension_count"));
    HF_ASSIGN_OR_RETURN(config_.rope.theta,
                        keys_.NeededNumber("rope.freq_base"));
    return kernels::OkStatus();
  }

  Status ReadGdn() {
    constexpr int kTaps = 4;
    HF_ASSIGN_OR_RETURN(const int taps, keys_.NeededSize("ssm.conv_kernel"));
    if (taps != kTaps) {
      return keys_.Refused("ssm.conv_kernel", std::to_string(taps));
    }
    HF_ASSIGN_OR_RETURN(config_.key_heads, keys_.NeededSize("ssm.group_count"));
    HF_ASSIGN_OR_RETURN(config_.value_heads,
                        keys_.NeededSize("ssm.time_step_rank"));
    HF_ASSIGN_OR_RETURN(config_.key_dim, keys_.NeededSize("ssm.state_size"));
    HF_ASSIGN_OR_RETURN(const int inner, keys_.NeededSize("ssm.inner_size"));
    if (config_.value_heads < 1 || inner % config_.value_heads != 0) {
      return keys_.Refused("ssm.inner_size", std::to_string(inner));
    }
    config_.value_dim = inner / config_.value_heads;
    return kernels::OkStatus();
  }

  Status ReadFeedForward() {
    if (!is_moe_) {
      HF_RETURN_IF_ERROR(keys_.RefuseSet("expert_count"));
      HF_ASSIGN_OR_RETURN(config_.ffn, keys_.NeededSize("feed_forward_length"));
      return kernels::OkStatus();
    }
    HF_ASSIGN_OR_RETURN(config_.experts, keys_.NeededSize("expert_count"));
    HF_ASSIGN_OR_RETURN(config_.top_k, keys_.NeededSize("expert_used_count"));
    HF_ASSIGN_OR_RETURN(config_.expert_ffn,
                        keys_.NeededSize("expert_feed_forward_length"));
    HF_ASSIGN_OR_RETURN(config_.shared_ffn,
                        keys_.NeededSize("expert_shared_feed_forward_length"));
    return kernels::OkStatus();
  }

  GgufConfigReader keys_;
  bool is_moe_;
  Qwen35Config config_;
};

}  // namespace

StatusOr<Qwen35Config> Qwen35ConfigFromGguf(const GgufFile& file) {
  HF_ASSIGN_OR_RETURN(const std::string architecture, GgufArchitecture(file));
  return Reader(file, architecture).Read();
}

}  // namespace holdfast::model
