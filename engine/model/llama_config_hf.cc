// LlamaConfig from a Hugging Face config.json.
#include <string>
#include <string_view>

#include "engine/model/hf_config_reader.h"
#include "engine/model/llama_config.h"
#include "engine/model/message.h"

namespace holdfast::model {
namespace {

using kernels::Status;
using kernels::StatusOr;

// Read here, or without any effect on the arithmetic of inference.
constexpr std::string_view kKnownKeys[] = {
    "_attn_implementation_autoset",
    "architectures",
    "attention_bias",
    "attention_dropout",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "max_window_layers",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "output_attentions",
    "output_hidden_states",
    "partial_rotary_factor",
    "quantization_config",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "tie_word_embeddings",
    "use_sliding_window",
    "vocab_size",
};

class Reader {
 public:
  Reader(JsonValue json, const std::string& file)
      : json_(json, file, ""), file_(file) {}

  StatusOr<LlamaConfig> Read() {
    constexpr std::string_view kClasses[] = {"ForCausalLM"};
    HF_ASSIGN_OR_RETURN(config_.architecture, HfModelType(json_.json(), file_));
    HF_RETURN_IF_ERROR(json_.CheckClasses(kClasses));
    HF_RETURN_IF_ERROR(json_.RefuseUnknown(kKnownKeys));
    HF_RETURN_IF_ERROR(RefuseVariants());
    HF_RETURN_IF_ERROR(json_.CheckQuantization());
    HF_RETURN_IF_ERROR(ReadSizes());
    HF_RETURN_IF_ERROR(ReadFlags());
    HF_RETURN_IF_ERROR(ReadRope());
    HF_RETURN_IF_ERROR(CheckLlamaConfig(config_, file_));
    return config_;
  }

 private:
  Status RefuseVariants() const {
    const bool is_llama = config_.architecture == "llama";
    if (const auto use = json_.Get("use_sliding_window"); use && !IsOff(*use)) {
      return json_.Refused("use_sliding_window");
    }
    // Qwen's files carry a window that use_sliding_window leaves off.
    if (is_llama && json_.Get("sliding_window")) {
      return json_.Refused("sliding_window");
    }
    if (const auto types = json_.Get("layer_types")) {
      for (JsonValue type : types->elements()) {
        if (!type.is_string() || type.string() != "full_attention") {
          return json_.Refused("layer_types");
        }
      }
    }
    const auto partial = json_.Get("partial_rotary_factor");
    if (partial && (!partial->is_number() || partial->number() != 1)) {
      return json_.Refused("partial_rotary_factor");
    }
    return json_.CheckActivation();
  }

  Status ReadSizes() {
    HF_ASSIGN_OR_RETURN(config_.vocab_size, json_.Size("vocab_size", {}));
    HF_ASSIGN_OR_RETURN(config_.max_context,
                        json_.Size("max_position_embeddings", {}));
    HF_ASSIGN_OR_RETURN(config_.layers, json_.Size("num_hidden_layers", {}));
    HF_ASSIGN_OR_RETURN(config_.hidden, json_.Size("hidden_size", {}));
    HF_ASSIGN_OR_RETURN(config_.ffn, json_.Size("intermediate_size", {}));
    HF_ASSIGN_OR_RETURN(config_.heads, json_.Size("num_attention_heads", {}));
    HF_ASSIGN_OR_RETURN(config_.kv_heads,
                        json_.Size("num_key_value_heads", config_.heads));
    // The reference's default, which for qwen3 is a constant.
    constexpr int kQwen3HeadDim = 128;
    const int head_dim = config_.architecture == "qwen3"
                             ? kQwen3HeadDim
                             : config_.hidden / config_.heads;
    HF_ASSIGN_OR_RETURN(config_.head_dim, json_.Size("head_dim", head_dim));
    return kernels::OkStatus();
  }

  Status ReadFlags() {
    constexpr double kDefaultEps = 1e-6;
    HF_ASSIGN_OR_RETURN(const double eps,
                        json_.Number("rms_norm_eps", kDefaultEps));
    config_.rms_eps = static_cast<float>(eps);
    HF_ASSIGN_OR_RETURN(config_.tied_embeddings,
                        json_.Flag("tie_word_embeddings", false));
    HF_ASSIGN_OR_RETURN(const bool bias, json_.Flag("attention_bias", false));
    const bool is_qwen2 = config_.architecture == "qwen2";
    config_.qkv_bias = is_qwen2 || bias;
    config_.output_bias = !is_qwen2 && bias;
    config_.qk_norm = config_.architecture == "qwen3";
    return kernels::OkStatus();
  }

  // rope_theta and rope_scaling, or both in rope_parameters (transformers 5).
  Status ReadRope() {
    HF_ASSIGN_OR_RETURN(config_.rope.theta,
                        json_.Number("rope_theta", config_.rope.theta));
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      HF_ASSIGN_OR_RETURN(const auto object, json_.Object(key));
      if (object) HF_RETURN_IF_ERROR(ReadRopeObject(*object));
    }
    return kernels::OkStatus();
  }

  Status ReadRopeObject(const HfConfigReader& object) {
    HF_ASSIGN_OR_RETURN(config_.rope.theta,
                        object.Number("rope_theta", config_.rope.theta));
    std::string_view type = "default";
    for (const char* key : {"type", "rope_type"}) {
      HF_ASSIGN_OR_RETURN(type, object.String(key, type));
    }
    HF_RETURN_IF_ERROR(RefuseRopeKeys(object, type));
    if (type == "default") return kernels::OkStatus();
    HF_ASSIGN_OR_RETURN(config_.rope.factor, object.Number("factor", {}));
    if (type == "linear") {
      config_.rope.scaling = RopeConfig::Scaling::kLinear;
      return kernels::OkStatus();
    }
    config_.rope.scaling = RopeConfig::Scaling::kLlama3;
    HF_ASSIGN_OR_RETURN(config_.rope.low_freq_factor,
                        object.Number("low_freq_factor", {}));
    HF_ASSIGN_OR_RETURN(config_.rope.high_freq_factor,
                        object.Number("high_freq_factor", {}));
    HF_ASSIGN_OR_RETURN(config_.rope.original_context,
                        object.Number("original_max_position_embeddings", {}));
    return kernels::OkStatus();
  }

  Status RefuseRopeKeys(const HfConfigReader& object,
                        std::string_view type) const {
    if (type != "default" && type != "linear" && type != "llama3") {
      return object.Refused(
          Message("rope_type '", type, "' (known: default, linear, llama3)"));
    }
    for (auto [key, value] : object.json().members()) {
      const bool common = key == "rope_theta" || key == "type" ||
                          key == "rope_type" ||
                          (key == "partial_rotary_factor" &&
                           value.is_number() && value.number() == 1);
      const bool scaled = type != "default" && key == "factor";
      const bool llama3 =
          type == "llama3" &&
          (key == "low_freq_factor" || key == "high_freq_factor" ||
           key == "original_max_position_embeddings");
      if (!common && !scaled && !llama3 && !value.is_null()) {
        return object.Refused(key);
      }
    }
    return kernels::OkStatus();
  }

  HfConfigReader json_;
  const std::string& file_;
  LlamaConfig config_;
};

}  // namespace

StatusOr<LlamaConfig> LlamaConfigFromJson(JsonValue config,
                                          const std::string& file) {
  return Reader(config, file).Read();
}

}  // namespace holdfast::model
