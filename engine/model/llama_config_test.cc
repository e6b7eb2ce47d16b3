#include "engine/model/llama_config.h"

#include <functional>
#include <string>
#include <vector>

#include "engine/model/testing/gguf_writer.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

kernels::StatusOr<LlamaConfig> FromText(const std::string& text) {
  auto document = JsonDocument::Parse(text, "config.json");
  EXPECT_TRUE(document.ok()) << document.status().message();
  return LlamaConfigFromJson(document->root(), "config.json");
}

// A llama configuration with further members.
std::string Config(const std::string& more,
                   const std::string& architecture = "llama") {
  return R"({"model_type": ")" + architecture + R"(", "vocab_size": 100,
      "max_position_embeddings": 64, "num_hidden_layers": 2,
      "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4)" +
         (more.empty() ? "" : ", ") + more + "}";
}

std::string ErrorOf(const std::string& text) {
  const auto config = FromText(text);
  return config.ok() ? "" : config.status().message();
}

TEST(LlamaConfigTest, DefaultsAreTheReferences) {
  const auto config = FromText(Config(""));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->kv_heads, 4);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->rms_eps, 1e-6f);
  EXPECT_EQ(config->rope.theta, 10000);
  EXPECT_EQ(config->rope.scaling, RopeConfig::Scaling::kNone);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_FALSE(config->qk_norm);
  EXPECT_FALSE(config->paired_rows);
  const auto qwen2 = FromText(Config("", "qwen2"));
  ASSERT_TRUE(qwen2.ok()) << qwen2.status().message();
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_FALSE(qwen2->output_bias);
  const auto qwen3 = FromText(Config("", "qwen3"));
  ASSERT_TRUE(qwen3.ok()) << qwen3.status().message();
  EXPECT_TRUE(qwen3->qk_norm);
  EXPECT_EQ(qwen3->head_dim, 128);
}

TEST(LlamaConfigTest, ReadsBothFormsOfRopeScaling) {
  const char* llama3 =
      R"("rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192)";
  const std::string forms[] = {
      R"("rope_theta": 500000.0, "rope_scaling": {)" + std::string(llama3) +
          "}",
      R"("rope_parameters": {"rope_theta": 500000.0, )" + std::string(llama3) +
          "}"};
  for (const std::string& form : forms) {
    const auto config = FromText(Config(form));
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->rope.theta, 500000);
    EXPECT_EQ(config->rope.scaling, RopeConfig::Scaling::kLlama3);
    EXPECT_EQ(config->rope.factor, 32);
    EXPECT_EQ(config->rope.original_context, 8192);
  }
  const auto linear =
      FromText(Config(R"("rope_scaling": {"type": "linear", "factor": 2})"));
  ASSERT_TRUE(linear.ok()) << linear.status().message();
  EXPECT_EQ(linear->rope.scaling, RopeConfig::Scaling::kLinear);
  EXPECT_EQ(linear->rope.factor, 2);
}

TEST(LlamaConfigTest, AcceptsWhatChangesNothing) {
  for (const char* more : {
           R"("sliding_window": null, "use_cache": true)",
           R"("torch_dtype": "bfloat16", "transformers_version": "5.0.0")",
           R"("attention_dropout": 0.0, "initializer_range": 0.02)",
           R"("mlp_bias": false, "rope_interleaved": false)",
           R"("hidden_act": "silu", "pretraining_tp": 1)",
           R"("layer_types": ["full_attention", "full_attention"])",
           R"("partial_rotary_factor": 1.0, "rope_scaling": null)",
           R"("architectures": ["LlamaForCausalLM"], "eos_token_id": [1, 2])",
       }) {
    EXPECT_EQ(ErrorOf(Config(more)), "") << more;
  }
  EXPECT_EQ(ErrorOf(Config(R"("use_sliding_window": false,
                              "sliding_window": 4096, "max_window_layers": 21)",
                           "qwen2")),
            "");
}

TEST(LlamaConfigTest, NamesTheKeyItDoesNotImplement) {
  const struct {
    const char* more;
    const char* key;
  } cases[] = {
      {R"("sliding_window": 4096)", "sliding_window"},
      {R"("use_sliding_window": true)", "use_sliding_window"},
      {R"("layer_types": ["full_attention", "sliding_attention"])",
       "layer_types"},
      {R"("hidden_act": "gelu")", "hidden_act"},
      {R"("mlp_bias": true)", "mlp_bias"},
      {R"("attn_logit_softcapping": 50.0)", "attn_logit_softcapping"},
      {R"("final_logit_softcapping": 30.0)", "final_logit_softcapping"},
      {R"("no_rope_layers": [1, 1, 1, 0])", "no_rope_layers"},
      {R"("no_rope_layer_interval": 4)", "no_rope_layer_interval"},
      {R"("partial_rotary_factor": 0.5)", "partial_rotary_factor"},
      {R"("attention_multiplier": 0.1)", "attention_multiplier"},
      {R"("residual_multiplier": 0.2)", "residual_multiplier"},
      {R"("embedding_multiplier": 12.0)", "embedding_multiplier"},
      {R"("logits_scaling": 8.0)", "logits_scaling"},
      {R"("query_pre_attn_scalar": 256)", "query_pre_attn_scalar"},
      {R"("rope_interleaved": true)", "rope_interleaved"},
      {R"("quantization_config": {"bits": 4})", "quantization_config"},
      {R"("auto_map": {"AutoModel": "x.Y"})", "auto_map"},
      {R"("num_local_experts": 8)", "num_local_experts"},
      {R"("use_qk_norm": true)", "use_qk_norm"},
      {R"("clip_qkv": 8.0)", "clip_qkv"},
      {R"("architectures": ["LlamaForSequenceClassification"])",
       "architectures"},
      {R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0})", "yarn"},
      {R"("rope_scaling": {"type": "dynamic", "factor": 4.0})", "dynamic"},
      {R"("rope_parameters": {"rope_type": "longrope"})", "longrope"},
      {R"("rope_scaling": {"type": "linear", "factor": 2, "mscale": 1})",
       "rope_scaling.mscale"},
      {R"("rope_parameters": {"partial_rotary_factor": 0.25})",
       "rope_parameters.partial_rotary_factor"},
      {R"("rope_parameters": {"full_attention": {"rope_type": "default"}})",
       "rope_parameters.full_attention"},
      {R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})",
       "low_freq_factor"},
      {R"("rope_scaling": {"rope_type": "linear"})", "factor"},
      {R"("rope_scaling": "linear")", "rope_scaling"},
      {R"("tie_word_embeddings": "yes")", "tie_word_embeddings"},
      {R"("rms_norm_eps": "small")", "rms_norm_eps"},
      {R"("head_dim": 24)", "head dimension 24"},
      {R"("num_key_value_heads": 3)", "3 KV heads"},
      {R"("rms_norm_eps": 0.0)", "epsilon"},
      {R"("rope_theta": 0.0)", "rotary base"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ErrorOf(Config(c.more)),
                AllOf(HasSubstr(c.key), HasSubstr("config.json")))
        << c.more;
  }
}

TEST(LlamaConfigTest, NamesWhatIsMissing) {
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("model_type"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("not an object"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "llama"})"), HasSubstr("vocab_size"));
}

TEST(LlamaConfigTest, TextTellsConfigurationsApart) {
  const auto text = [](const std::string& more) {
    return LlamaConfigText(*FromText(Config(more)));
  };
  EXPECT_EQ(text(""), text(R"("rms_norm_eps": 1e-6)"));
  LlamaConfig longer = *FromText(Config(""));
  longer.max_context *= 2;  // changes no row
  EXPECT_EQ(text(""), LlamaConfigText(longer));
  for (const char* more :
       {R"("rms_norm_eps": 1e-5)", R"("rope_theta": 10000.5)",
        R"("num_key_value_heads": 2)", R"("attention_bias": true)",
        R"("tie_word_embeddings": true)", R"("head_dim": 32)",
        R"("rope_scaling": {"type": "linear", "factor": 2})"}) {
    EXPECT_NE(text(""), text(more)) << more;
  }
}

class GgufConfigTest : public ::testing::Test {
 protected:
  // The error of a llama file after `more` was added.
  std::string ErrorOf(const std::function<void(testing::GgufWriter*)>& more,
                      const char* architecture = "llama") {
    testing::GgufWriter writer;
    writer.AddString("general.architecture", architecture);
    writer.AddU32("llama.block_count", 1);
    writer.AddU32("llama.context_length", 64);
    writer.AddU32("llama.embedding_length", 64);
    writer.AddU32("llama.feed_forward_length", 64);
    writer.AddU32("llama.attention.head_count", 2);
    writer.AddF32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    writer.AddU32("llama.vocab_size", 100);
    more(&writer);
    const std::string path = folder_.File("a.gguf");
    EXPECT_TRUE(testing::WriteFile(path, writer.Finish()).ok());
    const auto file = GgufFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.status().message();
    const auto config = LlamaConfigFromGguf(*file);
    return config.ok() ? "" : config.status().message();
  }

  testing::TempFolder folder_;
};

TEST_F(GgufConfigTest, NamesTheKeyItDoesNotImplement) {
  using Writer = testing::GgufWriter;
  EXPECT_EQ(ErrorOf([](Writer*) {}), "");
  const auto number = [&](const char* key, int value) {
    return ErrorOf([&](Writer* writer) {
      writer->AddU32(key, static_cast<std::uint32_t>(value));
    });
  };
  EXPECT_THAT(number("llama.expert_count", 8), HasSubstr("expert_count"));
  EXPECT_EQ(number("llama.expert_count", 0), "");
  EXPECT_THAT(number("llama.attention.sliding_window", 4096),
              HasSubstr("sliding_window"));
  EXPECT_THAT(number("llama.rope.dimension_count", 16),
              HasSubstr("rope.dimension_count"));
  EXPECT_THAT(number("llama.attention.value_length", 16),
              HasSubstr("attention.value_length"));
  EXPECT_THAT(number("llama.pooling_type", 1), HasSubstr("pooling_type"));
  EXPECT_THAT(number("llama.attention.head_count_kv", 0), HasSubstr("KV"));
  EXPECT_THAT(number("split.count", 3), HasSubstr("split.count"));
  EXPECT_THAT(ErrorOf([](Writer* writer) {
                writer->AddF32("llama.attn_logit_softcapping", 50);
              }),
              HasSubstr("attn_logit_softcapping"));
  EXPECT_THAT(ErrorOf([](Writer* writer) {
                writer->AddString("llama.rope.scaling.type", "yarn");
              }),
              HasSubstr("rope.scaling.type = yarn"));
  EXPECT_THAT(ErrorOf([](Writer* writer) {
                writer->AddString("general.type", "adapter");
              }),
              HasSubstr("adapter"));
  EXPECT_THAT(ErrorOf([](Writer*) {}, "qwen2"),
              HasSubstr("qwen2.block_count is missing"));
}

}  // namespace
}  // namespace holdfast::model
