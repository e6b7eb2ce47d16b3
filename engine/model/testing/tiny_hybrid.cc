#include "engine/model/testing/tiny_hybrid.h"

#include <cstdint>
#include <string_view>

#include "engine/model/message.h"

namespace holdfast::model::testing {
namespace {

constexpr int kTaps = 4;
constexpr float kRotaryPart = 0.25f;

std::string LayerTypes(const TinyModelOptions& options) {
  std::string types;
  for (int i = 1; i <= options.layers; ++i) {
    types += Message(types.empty() ? "" : ", ",
                     i % options.hybrid.attention_interval == 0
                         ? "\"full_attention\""
                         : "\"linear_attention\"");
  }
  return types;
}

// The members of the text model's configuration.
std::string TextMembers(const TinyModelOptions& options, int vocab_size) {
  const TinyHybridOptions& hybrid = options.hybrid;
  std::string out;
  const auto add = [&](const char* key, const auto& value) {
    out += Message(out.empty() ? "" : ",\n", "  \"", key, "\": ", value);
  };
  add("attention_bias", "false");
  add("head_dim", options.head_dim);
  add("hidden_act", "\"silu\"");
  add("hidden_size", options.hidden);
  if (options.architecture == "qwen3_5") {
    add("intermediate_size", options.ffn);
  } else {
    add("moe_intermediate_size", hybrid.expert_ffn);
    add("shared_expert_intermediate_size", hybrid.shared_ffn);
    add("num_experts", hybrid.experts);
    add("num_experts_per_tok", hybrid.top_k);
  }
  add("layer_types", Message("[", LayerTypes(options), "]"));
  add("linear_conv_kernel_dim", kTaps);
  add("linear_key_head_dim", hybrid.key_dim);
  add("linear_num_key_heads", hybrid.key_heads);
  add("linear_num_value_heads", hybrid.value_heads);
  add("linear_value_head_dim", hybrid.value_dim);
  add("max_position_embeddings", options.max_context);
  if (hybrid.mtp_layers > 0) add("mtp_num_hidden_layers", hybrid.mtp_layers);
  add("num_attention_heads", options.heads);
  add("num_hidden_layers", options.layers);
  add("num_key_value_heads", options.kv_heads);
  add("rms_norm_eps", "1e-06");
  const char* sections = options.architecture == "qwen3_next"
                             ? ""
                             : "\"mrope_interleaved\": true, "
                               "\"mrope_section\": [3, 3, 2], ";
  add("rope_parameters",
      Message("{", sections, "\"partial_rotary_factor\": ", kRotaryPart,
              ", \"rope_theta\": ", options.rope.theta,
              ", \"rope_type\": \"default\"}"));
  add("tie_word_embeddings", options.tied_embeddings ? "true" : "false");
  add("vocab_size", vocab_size);
  return out;
}

std::string_view ClassName(const TinyModelOptions& options) {
  if (options.architecture == "qwen3_next") return "Qwen3Next";
  return options.architecture == "qwen3_5" ? "Qwen3_5" : "Qwen3_5Moe";
}

}  // namespace

bool IsHybrid(const TinyModelOptions& options) {
  return options.architecture.starts_with("qwen3_");
}

bool IsFolderOnly(const TinyModelOptions& options) {
  return options.type == kernels::WeightType::kF8E4M3 ||
         options.architecture == "qwen3_next" ||
         (options.architecture == "qwen3_5_moe" &&
          !options.hybrid.fused_experts);
}

std::string HybridConfigJson(const TinyModelOptions& options,
                             const TinyTokenizer& tokenizer) {
  const bool nested = options.hybrid.nested;
  const bool flat_text = options.architecture != "qwen3_next" && !nested;
  const std::string members =
      TextMembers(options, static_cast<int>(tokenizer.tokens.size()));
  std::string out = Message(
      "{\n  \"architectures\": [\"", ClassName(options), "For",
      nested ? "ConditionalGeneration" : "CausalLM", "\"],\n",
      "  \"bos_token_id\": ", tokenizer.end_of_text, ",\n",
      "  \"eos_token_id\": ", tokenizer.turn_end, ",\n", "  \"model_type\": \"",
      options.architecture, flat_text ? "_text" : "", "\",\n");
  if (options.type == kernels::WeightType::kF8E4M3 && !options.widened) {
    out +=
        "  \"quantization_config\": {\"activation_scheme\": \"dynamic\","
        " \"fmt\": \"e4m3\", \"quant_method\": \"fp8\","
        " \"weight_block_size\": [128, 128]},\n";
  }
  if (!nested) return out + members + "\n}\n";
  return Message(out, "  \"tie_word_embeddings\": ",
                 options.tied_embeddings ? "true" : "false",
                 ",\n  \"text_config\": {\n  \"model_type\": \"",
                 options.architecture, "_text\",\n", members,
                 "\n  },\n  \"vision_config\": {\"depth\": 1}\n}\n");
}

void AddHybridConfig(const TinyModelOptions& options, GgufWriter* writer) {
  const TinyHybridOptions& hybrid = options.hybrid;
  const bool moe = options.architecture == "qwen3_5_moe";
  const std::string prefix = moe ? "qwen35moe." : "qwen35.";
  const auto size = [&](const char* key, int value) {
    writer->AddU32(prefix + key, static_cast<std::uint32_t>(value));
  };
  size("block_count", options.layers + hybrid.mtp_layers);
  if (hybrid.mtp_layers > 0) size("nextn_predict_layers", hybrid.mtp_layers);
  size("context_length", options.max_context);
  size("embedding_length", options.hidden);
  if (moe) {
    size("expert_count", hybrid.experts);
    size("expert_used_count", hybrid.top_k);
    size("expert_feed_forward_length", hybrid.expert_ffn);
    size("expert_shared_feed_forward_length", hybrid.shared_ffn);
  } else {
    size("feed_forward_length", options.ffn);
  }
  size("attention.head_count", options.heads);
  size("attention.head_count_kv", options.kv_heads);
  size("attention.key_length", options.head_dim);
  size("attention.value_length", options.head_dim);
  writer->AddF32(prefix + "attention.layer_norm_rms_epsilon", 1e-6f);
  size("rope.dimension_count",
       static_cast<int>(options.head_dim * kRotaryPart));
  const std::int32_t sections[] = {3, 3, 2, 0};
  writer->AddInts(prefix + "rope.dimension_sections", sections);
  writer->AddF32(prefix + "rope.freq_base",
                 static_cast<float>(options.rope.theta));
  size("full_attention_interval", hybrid.attention_interval);
  size("ssm.conv_kernel", kTaps);
  size("ssm.group_count", hybrid.key_heads);
  size("ssm.inner_size", hybrid.value_heads * hybrid.value_dim);
  size("ssm.state_size", hybrid.key_dim);
  size("ssm.time_step_rank", hybrid.value_heads);
}

}  // namespace holdfast::model::testing
