// Qwen35Config from a Hugging Face config.json.
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "engine/model/hf_config_reader.h"
#include "engine/model/message.h"
#include "engine/model/qwen35/config.h"

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
    "attn_output_gate",
    "decoder_sparse_step",
    "full_attention_interval",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "layer_types",
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "mamba_ssm_dtype",
    "max_position_embeddings",
    "mlp_only_layers",
    "model_type",
    "moe_intermediate_size",
    "mtp_num_hidden_layers",
    "norm_topk_prob",
    "num_attention_heads",
    "num_experts",
    "num_experts_per_tok",
    "num_hidden_layers",
    "num_key_value_heads",
    "num_nextn_predict_layers",
    "output_attentions",
    "output_gate_type",
    "output_hidden_states",
    "output_router_logits",
    "partial_rotary_factor",
    "quantization_config",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "router_aux_loss_coef",
    "shared_expert_intermediate_size",
    "tie_word_embeddings",
    "vocab_size",
};
// Beside text_config.
constexpr std::string_view kKnownOuterKeys[] = {
    "architectures",       "model_type",          "output_attentions",
    "quantization_config", "tie_word_embeddings",
};
constexpr std::string_view kKnownRopeKeys[] = {
    "mrope_interleaved", "mrope_section", "partial_rotary_factor",
    "rope_theta",        "rope_type",     "type",
};
constexpr std::string_view kClasses[] = {"ForCausalLM",
                                         "ForConditionalGeneration"};

class Reader {
 public:
  Reader(const HfConfigReader& json, std::string architecture)
      : json_(json), file_(json.file()) {
    config_.architecture = std::move(architecture);
  }

  StatusOr<Qwen35Config> Read() {
    HF_RETURN_IF_ERROR(json_.RefuseUnknown(kKnownKeys));
    HF_RETURN_IF_ERROR(json_.CheckClasses(kClasses));
    HF_RETURN_IF_ERROR(json_.CheckQuantization());
    HF_RETURN_IF_ERROR(RefuseVariants());
    HF_RETURN_IF_ERROR(ReadSizes());
    HF_RETURN_IF_ERROR(ReadLayerTypes());
    HF_RETURN_IF_ERROR(ReadExperts());
    HF_RETURN_IF_ERROR(ReadRope());
    HF_ASSIGN_OR_RETURN(config_.tied_embeddings,
                        json_.Flag("tie_word_embeddings", false));
    return std::move(config_);
  }

 private:
  bool is_moe() const { return config_.architecture != "qwen3_5"; }

  // What the family's arithmetic leaves no room for.
  Status RefuseVariants() const {
    HF_RETURN_IF_ERROR(json_.CheckActivation());
    HF_ASSIGN_OR_RETURN(const bool bias, json_.Flag("attention_bias", false));
    if (bias) return json_.Refused("attention_bias");
    HF_ASSIGN_OR_RETURN(const bool gated, json_.Flag("attn_output_gate", true));
    if (!gated) return json_.Refused("attn_output_gate");
    HF_ASSIGN_OR_RETURN(const auto gate,
                        json_.String("output_gate_type", "swish"));
    if (gate != "swish" && gate != "silu") {
      return json_.Refused("output_gate_type");
    }
    // The state is float whatever this says; another value was trained for.
    HF_ASSIGN_OR_RETURN(const auto state,
                        json_.String("mamba_ssm_dtype", "float32"));
    if (state != "float32") return json_.Refused("mamba_ssm_dtype");
    constexpr int kTaps = 4;
    HF_ASSIGN_OR_RETURN(const int taps,
                        json_.Size("linear_conv_kernel_dim", kTaps));
    if (taps != kTaps) return json_.Refused("linear_conv_kernel_dim");
    return kernels::OkStatus();
  }

  // Defaults are the reference's.
  Status ReadSizes() {
    HF_ASSIGN_OR_RETURN(config_.vocab_size, json_.Size("vocab_size", {}));
    HF_ASSIGN_OR_RETURN(config_.max_context,
                        json_.Size("max_position_embeddings", {}));
    HF_ASSIGN_OR_RETURN(config_.layers, json_.Size("num_hidden_layers", {}));
    HF_ASSIGN_OR_RETURN(config_.hidden, json_.Size("hidden_size", {}));
    HF_ASSIGN_OR_RETURN(config_.heads, json_.Size("num_attention_heads", {}));
    HF_ASSIGN_OR_RETURN(config_.kv_heads,
                        json_.Size("num_key_value_heads", {}));
    HF_ASSIGN_OR_RETURN(config_.head_dim, json_.Size("head_dim", 256));
    HF_ASSIGN_OR_RETURN(config_.key_heads,
                        json_.Size("linear_num_key_heads", 16));
    HF_ASSIGN_OR_RETURN(config_.value_heads,
                        json_.Size("linear_num_value_heads", 32));
    HF_ASSIGN_OR_RETURN(config_.key_dim,
                        json_.Size("linear_key_head_dim", 128));
    HF_ASSIGN_OR_RETURN(config_.value_dim,
                        json_.Size("linear_value_head_dim", 128));
    constexpr double kDefaultEps = 1e-6;
    HF_ASSIGN_OR_RETURN(const double eps,
                        json_.Number("rms_norm_eps", kDefaultEps));
    config_.rms_eps = static_cast<float>(eps);
    return kernels::OkStatus();
  }

  // A number of layers past any sane bound must not size anything.
  Status CheckLayers() const {
    constexpr int kMax = 1 << 12;
    if (config_.layers <= kMax) return kernels::OkStatus();
    return json_.Wrong("num_hidden_layers", "at most 4096");
  }

  Status ReadLayerTypes() {
    HF_RETURN_IF_ERROR(CheckLayers());
    const auto types = json_.Get("layer_types");
    if (!types) {
      HF_ASSIGN_OR_RETURN(const int interval,
                          json_.Size("full_attention_interval", 4));
      for (int i = 0; i < config_.layers; ++i) {
        config_.attention.push_back((i + 1) % interval == 0);
      }
      return kernels::OkStatus();
    }
    for (JsonValue type : types->elements()) {
      if (!type.is_string() || (type.string() != "full_attention" &&
                                type.string() != "linear_attention")) {
        return json_.Refused("layer_types");
      }
      config_.attention.push_back(type.string() == "full_attention");
    }
    if (config_.attention.size() != static_cast<std::size_t>(config_.layers)) {
      return json_.Wrong("layer_types", "a type for each hidden layer");
    }
    return kernels::OkStatus();
  }

  Status ReadExperts() {
    config_.sparse.assign(config_.layers, is_moe());
    if (is_moe()) HF_RETURN_IF_ERROR(ReadExpertSizes());
    if (config_.architecture == "qwen3_next") {
      HF_RETURN_IF_ERROR(ReadDenseLayers());
    } else {
      // Nothing of the reference reads them here.
      for (const char* key : {"mlp_only_layers", "decoder_sparse_step"}) {
        if (const auto value = json_.Get(key); value && !IsOff(*value)) {
          if (!(value->is_number() && value->number() == 1)) {
            return json_.Refused(key);
          }
        }
      }
    }
    bool dense = false;
    for (const bool sparse : config_.sparse) dense |= !sparse;
    if (!dense) return kernels::OkStatus();
    HF_ASSIGN_OR_RETURN(config_.ffn, json_.Size("intermediate_size", {}));
    return kernels::OkStatus();
  }

  Status ReadExpertSizes() {
    HF_ASSIGN_OR_RETURN(config_.experts, json_.Size("num_experts", {}));
    HF_ASSIGN_OR_RETURN(config_.top_k, json_.Size("num_experts_per_tok", {}));
    HF_ASSIGN_OR_RETURN(config_.expert_ffn,
                        json_.Size("moe_intermediate_size", {}));
    HF_ASSIGN_OR_RETURN(config_.shared_ffn,
                        json_.Size("shared_expert_intermediate_size", {}));
    HF_ASSIGN_OR_RETURN(config_.normalise_top_k,
                        json_.Flag("norm_topk_prob", true));
    if (!config_.normalise_top_k && config_.architecture == "qwen3_5_moe") {
      return json_.Refused("norm_topk_prob");
    }
    return kernels::OkStatus();
  }

  // Layers of Qwen3-Next that have no experts.
  Status ReadDenseLayers() {
    HF_ASSIGN_OR_RETURN(const int step, json_.Size("decoder_sparse_step", 1));
    for (int i = 0; i < config_.layers; ++i) {
      config_.sparse[i] = (i + 1) % step == 0;
    }
    const auto dense = json_.Get("mlp_only_layers");
    if (!dense) return kernels::OkStatus();
    for (JsonValue layer : dense->elements()) {
      const auto index = layer.integer();
      if (!index || *index < 0 || *index >= config_.layers) {
        return json_.Wrong("mlp_only_layers", "a list of layers");
      }
      config_.sparse[*index] = false;
    }
    return kernels::OkStatus();
  }

  // Flat, or in rope_parameters (transformers 5) or rope_scaling.
  Status ReadRope() {
    constexpr double kDefaultPart = 0.25;
    double theta = 0;  // no default: it differs between versions
    HF_ASSIGN_OR_RETURN(theta, json_.Number("rope_theta", 0));
    HF_ASSIGN_OR_RETURN(double part,
                        json_.Number("partial_rotary_factor", kDefaultPart));
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      HF_ASSIGN_OR_RETURN(const auto object, json_.Object(key));
      if (!object) continue;
      HF_RETURN_IF_ERROR(CheckRopeObject(*object));
      HF_ASSIGN_OR_RETURN(theta, object->Number("rope_theta", theta));
      HF_ASSIGN_OR_RETURN(part, object->Number("partial_rotary_factor", part));
    }
    if (theta == 0) return json_.Wrong("rope_theta", "there");
    if (!(part > 0 && part <= 1)) {
      return json_.Wrong("partial_rotary_factor", "in 0 to 1");
    }
    config_.rope.theta = theta;
    config_.rotary_dims = static_cast<int>(config_.head_dim * part);
    return kernels::OkStatus();
  }

  // Sections of rotary positions differ for images alone; the three positions
  // of a text token are one.
  Status CheckRopeObject(const HfConfigReader& object) const {
    for (const char* key : {"type", "rope_type"}) {
      HF_ASSIGN_OR_RETURN(const auto type, object.String(key, "default"));
      if (type != "default" && type != "mrope") {
        return object.Refused(
            Message("rope_type '", type, "' (known: default)"));
      }
    }
    for (auto [key, value] : object.json().members()) {
      bool known = value.is_null();
      for (std::string_view name : kKnownRopeKeys) known |= key == name;
      if (!known) return object.Refused(key);
    }
    return kernels::OkStatus();
  }

  const HfConfigReader& json_;
  const std::string& file_;
  Qwen35Config config_;
};

std::string WithoutSuffix(std::string name, std::string_view suffix) {
  if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  return name;
}

}  // namespace

StatusOr<Qwen35Config> Qwen35ConfigFromJson(JsonValue config,
                                            const std::string& file) {
  HF_ASSIGN_OR_RETURN(const std::string type, HfModelType(config, file));
  const std::string architecture = WithoutSuffix(type, "_text");
  const HfConfigReader outer(config, file, "");
  HF_ASSIGN_OR_RETURN(const auto text, outer.Object("text_config"));
  Qwen35Config result;
  if (!text) {
    HF_ASSIGN_OR_RETURN(result, Reader(outer, architecture).Read());
  } else {
    HF_RETURN_IF_ERROR(outer.RefuseUnknown(kKnownOuterKeys));
    HF_RETURN_IF_ERROR(outer.CheckClasses(kClasses));
    HF_RETURN_IF_ERROR(outer.CheckQuantization());
    HF_ASSIGN_OR_RETURN(const auto text_type,
                        text->String("model_type", architecture));
    if (WithoutSuffix(std::string(text_type), "_text") != architecture) {
      return text->Refused("model_type");
    }
    HF_ASSIGN_OR_RETURN(result, Reader(*text, architecture).Read());
    // The whole model's word counts, as in the reference.
    HF_ASSIGN_OR_RETURN(
        result.tied_embeddings,
        outer.Flag("tie_word_embeddings", result.tied_embeddings));
  }
  HF_RETURN_IF_ERROR(CheckQwen35Config(result, file));
  return result;
}

}  // namespace holdfast::model
