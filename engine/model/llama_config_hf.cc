// LlamaConfig from a Hugging Face config.json.
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
using kernels::StatusOr;
using kernels::Unimplemented;

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

// A key that is not known and has one of these in its name is taken to change
// the arithmetic. Names outside (versions, dates, ids) come and go freely.
constexpr std::string_view kSuspects[] = {
    "act",    "attention", "attn", "auto_map", "bias",  "cap",      "clip",
    "embed",  "expert",    "head", "layer",    "logit", "mlp",      "moe",
    "mrope",  "mult",      "norm", "position", "quant", "residual", "rope",
    "rotary", "scal",      "sink", "window",
};

// Absent in effect: null, false, 0, an empty list or object.
bool IsOff(JsonValue value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return true;
    case JsonValue::Kind::kBool:
      return !value.boolean();
    case JsonValue::Kind::kNumber:
      return value.number() == 0;
    case JsonValue::Kind::kString:
      return false;
    case JsonValue::Kind::kArray:
    case JsonValue::Kind::kObject:
      return value.size() == 0;
  }
  return false;
}

class Reader {
 public:
  Reader(JsonValue json, const std::string& file) : json_(json), file_(file) {}

  StatusOr<LlamaConfig> Read() {
    HF_RETURN_IF_ERROR(ReadArchitecture());
    HF_RETURN_IF_ERROR(RefuseUnknown());
    HF_RETURN_IF_ERROR(RefuseVariants());
    HF_RETURN_IF_ERROR(CheckQuantization());
    HF_RETURN_IF_ERROR(ReadSizes());
    HF_RETURN_IF_ERROR(ReadFlags());
    HF_RETURN_IF_ERROR(ReadRope());
    HF_RETURN_IF_ERROR(CheckLlamaConfig(config_, file_));
    return config_;
  }

 private:
  std::optional<JsonValue> Get(std::string_view key) const {
    return json_.FindSet(key);
  }
  Status Refused(std::string_view key) const {
    return Unimplemented(
        Message(file_, ": ", key, " with this value is not implemented"));
  }
  Status Wrong(std::string_view key, const char* wanted) const {
    return InvalidArgument(Message(file_, ": ", key, " is not ", wanted));
  }

  Status ReadArchitecture() {
    const auto type = Get("model_type");
    if (!type || !type->is_string()) return Wrong("model_type", "a string");
    config_.architecture = std::string(type->string());
    if (!IsLlamaArchitecture(config_.architecture)) {
      return Unimplemented(Message(file_, ": unknown model_type '",
                                   config_.architecture,
                                   "'; known: ", kLlamaArchitectures));
    }
    const auto classes = Get("architectures");
    if (!classes) return kernels::OkStatus();
    for (JsonValue name : classes->elements()) {
      if (!name.is_string() || !name.string().ends_with("ForCausalLM")) {
        return Refused("architectures");
      }
    }
    return kernels::OkStatus();
  }

  Status RefuseUnknown() const {
    for (auto [key, value] : json_.members()) {
      if (IsOff(value) ||
          std::find(std::begin(kKnownKeys), std::end(kKnownKeys), key) !=
              std::end(kKnownKeys)) {
        continue;
      }
      for (std::string_view suspect : kSuspects) {
        if (key.find(suspect) != std::string_view::npos) return Refused(key);
      }
    }
    return kernels::OkStatus();
  }

  Status RefuseVariants() const {
    const bool is_llama = config_.architecture == "llama";
    if (const auto use = Get("use_sliding_window"); use && !IsOff(*use)) {
      return Refused("use_sliding_window");
    }
    // Qwen's files carry a window that use_sliding_window leaves off.
    if (is_llama && Get("sliding_window")) return Refused("sliding_window");
    if (const auto types = Get("layer_types")) {
      for (JsonValue type : types->elements()) {
        if (!type.is_string() || type.string() != "full_attention") {
          return Refused("layer_types");
        }
      }
    }
    const auto act = Get("hidden_act");
    if (act && (!act->is_string() ||
                (act->string() != "silu" && act->string() != "swish"))) {
      return Refused("hidden_act");
    }
    const auto partial = Get("partial_rotary_factor");
    if (partial && (!partial->is_number() || partial->number() != 1)) {
      return Refused("partial_rotary_factor");
    }
    return kernels::OkStatus();
  }

  // Weights in F8_E4M3 with scales of 128 x 128 numbers, or one; which tensors
  // are, their types say. Activations stay floats: "dynamic" rounds them, row
  // by row, for nothing but the speed of other hardware.
  Status CheckQuantization() const {
    const auto config = Get("quantization_config");
    if (!config || IsOff(*config)) return kernels::OkStatus();
    const auto refused = [&](std::string_view key) {
      return Refused(Message("quantization_config.", key));
    };
    const auto method = config->FindSet("quant_method");
    if (!method || !method->is_string() || method->string() != "fp8") {
      return refused("quant_method");
    }
    for (auto [key, value] : config->members()) {
      if (IsOff(value) || key == "quant_method" || key == "scale_fmt" ||
          key == "modules_to_not_convert" || key == "ignored_layers") {
        continue;
      }
      const bool known =
          (key == "fmt" && value.is_string() && value.string() == "e4m3") ||
          (key == "activation_scheme" && value.is_string() &&
           value.string() == "dynamic") ||
          (key == "weight_block_size" && IsBlockOf128(value));
      if (!known) return refused(key);
    }
    return kernels::OkStatus();
  }

  static bool IsBlockOf128(JsonValue sizes) {
    for (JsonValue size : sizes.elements()) {
      if (size.integer() != 128) return false;
    }
    return sizes.is_array() && sizes.size() == 2;
  }

  StatusOr<int> Size(std::string_view key, std::optional<int> otherwise) const {
    const auto value = Get(key);
    if (!value && otherwise) return *otherwise;
    if (!value)
      return InvalidArgument(Message(file_, ": ", key, " is missing"));
    const auto integer = value->integer();
    if (!integer || *integer < 1 ||
        *integer > std::numeric_limits<int>::max()) {
      return Wrong(key, "a positive integer");
    }
    return static_cast<int>(*integer);
  }

  StatusOr<bool> Flag(std::string_view key, bool otherwise) const {
    const auto value = Get(key);
    if (!value) return otherwise;
    if (!value->is_bool()) return Wrong(key, "a boolean");
    return value->boolean();
  }

  Status ReadSizes() {
    HF_ASSIGN_OR_RETURN(config_.vocab_size, Size("vocab_size", {}));
    HF_ASSIGN_OR_RETURN(config_.max_context,
                        Size("max_position_embeddings", {}));
    HF_ASSIGN_OR_RETURN(config_.layers, Size("num_hidden_layers", {}));
    HF_ASSIGN_OR_RETURN(config_.hidden, Size("hidden_size", {}));
    HF_ASSIGN_OR_RETURN(config_.ffn, Size("intermediate_size", {}));
    HF_ASSIGN_OR_RETURN(config_.heads, Size("num_attention_heads", {}));
    HF_ASSIGN_OR_RETURN(config_.kv_heads,
                        Size("num_key_value_heads", config_.heads));
    // The reference's default, which for qwen3 is a constant.
    constexpr int kQwen3HeadDim = 128;
    const int head_dim = config_.architecture == "qwen3"
                             ? kQwen3HeadDim
                             : config_.hidden / config_.heads;
    HF_ASSIGN_OR_RETURN(config_.head_dim, Size("head_dim", head_dim));
    return kernels::OkStatus();
  }

  Status ReadFlags() {
    constexpr double kDefaultEps = 1e-6;
    HF_ASSIGN_OR_RETURN(const double eps,
                        Number(json_, "", "rms_norm_eps", kDefaultEps));
    config_.rms_eps = static_cast<float>(eps);
    HF_ASSIGN_OR_RETURN(config_.tied_embeddings,
                        Flag("tie_word_embeddings", false));
    HF_ASSIGN_OR_RETURN(const bool bias, Flag("attention_bias", false));
    const bool is_qwen2 = config_.architecture == "qwen2";
    config_.qkv_bias = is_qwen2 || bias;
    config_.output_bias = !is_qwen2 && bias;
    config_.qk_norm = config_.architecture == "qwen3";
    return kernels::OkStatus();
  }

  StatusOr<double> Number(JsonValue object, const std::string& prefix,
                          std::string_view key,
                          std::optional<double> otherwise) const {
    const std::string name = prefix + std::string(key);
    const auto value = object.FindSet(key);
    if (!value && otherwise) return *otherwise;
    if (!value) {
      return InvalidArgument(Message(file_, ": ", name, " is missing"));
    }
    if (!value->is_number()) return Wrong(name, "a number");
    return value->number();
  }

  // rope_theta and rope_scaling, or both in rope_parameters (transformers 5).
  Status ReadRope() {
    HF_ASSIGN_OR_RETURN(config_.rope.theta,
                        Number(json_, "", "rope_theta", config_.rope.theta));
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const auto value = Get(key);
      if (!value) continue;
      if (!value->is_object()) return Wrong(key, "an object");
      HF_RETURN_IF_ERROR(ReadRopeObject(*value, std::string(key) + "."));
    }
    return kernels::OkStatus();
  }

  Status ReadRopeObject(JsonValue object, const std::string& prefix) {
    HF_ASSIGN_OR_RETURN(config_.rope.theta, Number(object, prefix, "rope_theta",
                                                   config_.rope.theta));
    std::string_view type = "default";
    for (const char* key : {"type", "rope_type"}) {
      const auto value = object.FindSet(key);
      if (!value) continue;
      if (!value->is_string()) return Wrong(prefix + key, "a string");
      type = value->string();
    }
    HF_RETURN_IF_ERROR(RefuseRopeKeys(object, prefix, type));
    if (type == "default") return kernels::OkStatus();
    HF_ASSIGN_OR_RETURN(config_.rope.factor,
                        Number(object, prefix, "factor", {}));
    if (type == "linear") {
      config_.rope.scaling = RopeConfig::Scaling::kLinear;
      return kernels::OkStatus();
    }
    config_.rope.scaling = RopeConfig::Scaling::kLlama3;
    HF_ASSIGN_OR_RETURN(config_.rope.low_freq_factor,
                        Number(object, prefix, "low_freq_factor", {}));
    HF_ASSIGN_OR_RETURN(config_.rope.high_freq_factor,
                        Number(object, prefix, "high_freq_factor", {}));
    HF_ASSIGN_OR_RETURN(
        config_.rope.original_context,
        Number(object, prefix, "original_max_position_embeddings", {}));
    return kernels::OkStatus();
  }

  Status RefuseRopeKeys(JsonValue object, const std::string& prefix,
                        std::string_view type) const {
    if (type != "default" && type != "linear" && type != "llama3") {
      return Unimplemented(Message(file_, ": ", prefix, "rope_type '", type,
                                   "' is not implemented (default, linear, "
                                   "llama3)"));
    }
    for (auto [key, value] : object.members()) {
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
        return Refused(prefix + std::string(key));
      }
    }
    return kernels::OkStatus();
  }

  JsonValue json_;
  const std::string& file_;
  LlamaConfig config_;
};

}  // namespace

StatusOr<LlamaConfig> LlamaConfigFromJson(JsonValue config,
                                          const std::string& file) {
  if (!config.is_object()) {
    return InvalidArgument(Message(file, ": not an object"));
  }
  return Reader(config, file).Read();
}

}  // namespace holdfast::model
