#include "engine/model/qwen35/config.h"

#include <functional>
#include <string>
#include <vector>

#include "engine/model/qwen35/layout.h"
#include "engine/model/testing/gguf_writer.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/tiny_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

kernels::StatusOr<Qwen35Config> FromText(const std::string& text) {
  auto document = JsonDocument::Parse(text, "config.json");
  EXPECT_TRUE(document.ok()) << document.status().message();
  return Qwen35ConfigFromJson(document->root(), "config.json");
}

std::string ErrorOf(const std::string& text) {
  const auto config = FromText(text);
  return config.ok() ? "" : config.status().message();
}

// Members of a text configuration.
constexpr char kText[] = R"("vocab_size": 248320, "hidden_size": 5120,
    "intermediate_size": 17408, "num_hidden_layers": 64,
    "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256,
    "linear_num_key_heads": 16, "linear_num_value_heads": 48,
    "max_position_embeddings": 262144, "rope_parameters": {
      "rope_type": "default", "rope_theta": 10000000,
      "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10],
      "mrope_interleaved": true},
    "attn_output_gate": true, "output_gate_type": "swish",
    "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": false, "mlp_only_layers": [])";

// `more` names keys that are not there yet.
std::string Flat(const std::string& more,
                 const std::string& type = "qwen3_5_text") {
  return R"({"model_type": ")" + type + "\", " + kText +
         (more.empty() ? "" : ", ") + more + "}";
}

std::string Nested(const std::string& outer, const std::string& inner) {
  return std::string(R"({"model_type": "qwen3_5", "image_token_id": 248056,
      "architectures": ["Qwen3_5ForConditionalGeneration"],
      "vision_config": {"depth": 27, "hidden_act": "gelu_pytorch_tanh"})") +
         (outer.empty() ? "" : ", ") + outer +
         R"(, "text_config": {"model_type": "qwen3_5_text", )" + kText +
         (inner.empty() ? "" : ", ") + inner + "}}";
}

// A configuration with one key's value replaced.
std::string With(std::string text, const std::string& key,
                 const std::string& value) {
  const std::string name = "\"" + key + "\": ";
  const std::size_t at = text.find(name) + name.size();
  EXPECT_GE(at, name.size()) << key;
  const std::size_t end = text.find_first_of(",}", at);
  return text.replace(at, end - at, value);
}

TEST(Qwen35ConfigTest, ReadsFlatAndNestedForms) {
  const auto flat = FromText(Flat(""));
  ASSERT_TRUE(flat.ok()) << flat.status().message();
  EXPECT_EQ(flat->architecture, "qwen3_5");
  EXPECT_EQ(flat->layers, 64);
  EXPECT_EQ(flat->attention_layers(), 16);
  EXPECT_EQ(flat->gdn_layers(), 48);
  EXPECT_FALSE(flat->attention[0]);
  EXPECT_FALSE(flat->attention[2]);
  EXPECT_TRUE(flat->attention[3]);
  EXPECT_TRUE(flat->attention[63]);
  EXPECT_EQ(flat->rotary_dims, 64);
  EXPECT_EQ(flat->rope.theta, 1e7);
  EXPECT_EQ(flat->key_dim, 128);
  EXPECT_EQ(flat->value_dim, 128);
  EXPECT_EQ(flat->rms_eps, 1e-6f);
  EXPECT_FALSE(flat->tied_embeddings);
  const auto nested = FromText(Nested("", ""));
  ASSERT_TRUE(nested.ok()) << nested.status().message();
  EXPECT_EQ(Qwen35ConfigText(*nested), Qwen35ConfigText(*flat));
  const auto tied = FromText(Nested(R"("tie_word_embeddings": true)", ""));
  ASSERT_TRUE(tied.ok()) << tied.status().message();
  EXPECT_TRUE(tied->tied_embeddings);
  const auto inner_tied =
      FromText(Nested("", R"("tie_word_embeddings": true)"));
  ASSERT_TRUE(inner_tied.ok()) << inner_tied.status().message();
  EXPECT_TRUE(inner_tied->tied_embeddings);
}

// The 27B model, without its weights.
TEST(Qwen35ConfigTest, SizesOfThe27BModel) {
  const auto config = FromText(Nested("", ""));
  ASSERT_TRUE(config.ok()) << config.status().message();
  const CacheLayout layout =
      MakeQwen35Layout(*config, kernels::StateType::kBF16).cache;
  EXPECT_EQ(layout.RowBytes(), 65'536u);
  ASSERT_EQ(layout.views.size(), 2u);
  EXPECT_EQ(layout.views[0].name, "K");
  EXPECT_EQ(layout.views[0].parts, 16u);
  EXPECT_EQ(layout.views[1].name, "V");
  ASSERT_EQ(layout.sections.size(), 3u);
  EXPECT_EQ(layout.sections[0].name, "gdn.S");
  EXPECT_EQ(layout.sections[0].bytes, 150'994'944u);
  EXPECT_EQ(layout.sections[1].name, "gdn.conv");
  EXPECT_EQ(layout.sections[1].bytes, 2'949'120u);
  EXPECT_EQ(layout.sections[2].name, "h_last");
  EXPECT_EQ(layout.sections[2].bytes, 20'480u);
  EXPECT_EQ(layout.grid_tokens, 1024u);
  const CacheLayout floats =
      MakeQwen35Layout(*config, kernels::StateType::kF32).cache;
  EXPECT_EQ(floats.RowBytes(), 2 * 65'536u);
  EXPECT_EQ(floats.sections[0].bytes, 150'994'944u);
  EXPECT_EQ(floats.sections[1].bytes, 2 * 2'949'120u);
}

TEST(Qwen35ConfigTest, ReadsExpertsAndDenseLayers) {
  const std::string experts =
      R"("num_experts": 256, "num_experts_per_tok": 8,
         "moe_intermediate_size": 512, "shared_expert_intermediate_size": 640)";
  const auto moe = FromText(Flat(experts, "qwen3_5_moe_text"));
  ASSERT_TRUE(moe.ok()) << moe.status().message();
  EXPECT_EQ(moe->architecture, "qwen3_5_moe");
  EXPECT_EQ(moe->experts, 256);
  EXPECT_EQ(moe->top_k, 8);
  EXPECT_EQ(moe->expert_ffn, 512);
  EXPECT_EQ(moe->shared_ffn, 640);
  EXPECT_EQ(moe->ffn, 0);
  EXPECT_TRUE(moe->normalise_top_k);
  std::string next =
      Flat(experts + R"(, "decoder_sparse_step": 2, "norm_topk_prob": false)",
           "qwen3_next");
  next = With(next, "mlp_only_layers", "[1]");
  const auto sparse = FromText(next);
  ASSERT_TRUE(sparse.ok()) << sparse.status().message();
  EXPECT_EQ(sparse->architecture, "qwen3_next");
  EXPECT_FALSE(sparse->sparse[0]);
  EXPECT_FALSE(sparse->sparse[1]);
  EXPECT_FALSE(sparse->sparse[2]);
  EXPECT_TRUE(sparse->sparse[3]);
  EXPECT_EQ(sparse->ffn, 17408);
  EXPECT_FALSE(sparse->normalise_top_k);
  EXPECT_THAT(ErrorOf(Flat("", "qwen3_5_moe_text")), HasSubstr("num_experts"));
}

TEST(Qwen35ConfigTest, NamesTheKeyItDoesNotImplement) {
  const struct {
    const char* more;
    const char* key;
  } added[] = {
      {R"("attention_bias": true)", "attention_bias"},
      {R"("attn_logit_softcapping": 30.0)", "attn_logit_softcapping"},
      {R"("sliding_window": 4096)", "sliding_window"},
      {R"("linear_attention_bias": true)", "linear_attention_bias"},
      {R"("mtp_use_shared_head": true)", "mtp_use_shared_head"},
      {R"("rope_scaling": {"rope_type": "yarn", "factor": 4})", "yarn"},
      {R"("rope_scaling": {"mscale": 1.5})", "rope_scaling.mscale"},
      {R"("linear_conv_kernel_dim": 8)", "linear_conv_kernel_dim"},
      {R"("hidden_act": "gelu")", "hidden_act"},
      {R"("quantization_config": {"quant_method": "awq"})",
       "quantization_config.quant_method"},
      {R"("layer_types": ["full_attention"])", "layer_types"},
      {R"("layer_types": ["sliding_attention"])", "layer_types"},
      {R"("linear_key_head_dim": 40)", "linear key head dimension 40"},
      {R"("linear_value_head_dim": 512)", "linear value head dimension is 512"},
      {R"("full_attention_interval": 1)", "of one kind"},
      {R"("full_attention_interval": 65)", "of one kind"},
      {R"("decoder_sparse_step": 2)", "decoder_sparse_step"},
      {R"("num_experts_per_token_dropped": 3)", "num_experts_per_token"},
  };
  for (const auto& c : added) {
    EXPECT_THAT(ErrorOf(Flat(c.more)),
                AllOf(HasSubstr(c.key), HasSubstr("config.json")))
        << c.more;
  }
  const struct {
    const char* key;
    const char* value;
    const char* named;
  } replaced[] = {
      {"attn_output_gate", "false", "attn_output_gate"},
      {"output_gate_type", "\"sigmoid\"", "output_gate_type"},
      {"mamba_ssm_dtype", "\"bfloat16\"", "mamba_ssm_dtype"},
      {"mlp_only_layers", "[3]", "mlp_only_layers"},
      {"mtp_use_dedicated_embeddings", "true", "mtp_use_dedicated_embeddings"},
      {"rope_theta", "null", "rope_theta"},
      {"partial_rotary_factor", "0", "partial_rotary_factor"},
      {"partial_rotary_factor", "0.254", "rotary dimensions 65"},
      {"linear_num_value_heads", "47", "47 linear value heads"},
      {"num_key_value_heads", "5", "5 KV heads"},
      {"num_hidden_layers", "1000000", "num_hidden_layers"},
      {"hidden_size", "\"big\"", "hidden_size"},
      {"vocab_size", "null", "vocab_size is missing"},
  };
  for (const auto& c : replaced) {
    EXPECT_THAT(ErrorOf(With(Flat(""), c.key, c.value)),
                AllOf(HasSubstr(c.named), HasSubstr("config.json")))
        << c.key;
  }
}

TEST(Qwen35ConfigTest, NestedFormNamesItsKeys) {
  EXPECT_THAT(ErrorOf(Nested("", R"("sliding_window": 4096)")),
              HasSubstr("text_config.sliding_window"));
  EXPECT_THAT(ErrorOf(Nested(R"("logit_scale": 2)", "")),
              HasSubstr("config.json: logit_scale"));
  EXPECT_THAT(ErrorOf(Nested(R"("text_config_2": 1)", "")), "");
  EXPECT_THAT(ErrorOf(R"({"model_type": "qwen3_5", "text_config": 3})"),
              HasSubstr("text_config is not an object"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "qwen3_5", "text_config":
                  {"model_type": "qwen3_vl_text"}})"),
              HasSubstr("text_config.model_type"));
}

TEST(Qwen35ConfigTest, TextTellsConfigurationsApart) {
  const Qwen35Config config = *FromText(Flat(""));
  Qwen35Config longer = config;
  longer.max_context /= 2;  // changes no row
  EXPECT_EQ(Qwen35ConfigText(config), Qwen35ConfigText(longer));
  const std::function<void(Qwen35Config*)> changes[] = {
      [](Qwen35Config* c) { c->rms_eps *= 2; },
      [](Qwen35Config* c) { c->rotary_dims = 32; },
      [](Qwen35Config* c) { c->rope.theta = 1e6; },
      [](Qwen35Config* c) { c->attention[1] = true; },
      [](Qwen35Config* c) { c->sparse[1] = true; },
      [](Qwen35Config* c) { c->value_heads = 32; },
      [](Qwen35Config* c) { c->top_k = 3; },
      [](Qwen35Config* c) { c->normalise_top_k = false; },
      [](Qwen35Config* c) { c->tied_embeddings = true; },
  };
  for (const auto& change : changes) {
    Qwen35Config changed = config;
    change(&changed);
    EXPECT_NE(Qwen35ConfigText(config), Qwen35ConfigText(changed));
  }
}

class GgufConfigTest : public ::testing::Test {
 protected:
  kernels::StatusOr<Qwen35Config> Read(
      const std::function<void(testing::GgufWriter*)>& more, int skip = -1) {
    const std::pair<const char*, std::uint32_t> sizes[] = {
        {"block_count", 9},
        {"nextn_predict_layers", 1},
        {"context_length", 64},
        {"embedding_length", 64},
        {"feed_forward_length", 96},
        {"attention.head_count", 4},
        {"attention.head_count_kv", 2},
        {"attention.key_length", 32},
        {"rope.dimension_count", 8},
        {"ssm.conv_kernel", 4},
        {"ssm.group_count", 2},
        {"ssm.inner_size", 128},
        {"ssm.state_size", 16},
        {"ssm.time_step_rank", 4},
        {"vocab_size", 100}};
    testing::GgufWriter writer;
    writer.AddString("general.architecture", "qwen35");
    for (int i = 0; i < static_cast<int>(std::size(sizes)); ++i) {
      if (i == skip) continue;
      writer.AddU32(std::string("qwen35.") + sizes[i].first, sizes[i].second);
    }
    writer.AddF32("qwen35.attention.layer_norm_rms_epsilon", 1e-6f);
    writer.AddF32("qwen35.rope.freq_base", 1e7f);
    more(&writer);
    const std::string path = folder_.File("a.gguf");
    EXPECT_TRUE(testing::WriteFile(path, writer.Finish()).ok());
    const auto file = GgufFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return Qwen35ConfigFromGguf(*file);
  }

  testing::TempFolder folder_;
};

TEST_F(GgufConfigTest, ReadsTheConvertersKeys) {
  const auto config = Read([](testing::GgufWriter* writer) {
    const std::int32_t sections[] = {3, 3, 2, 0};
    writer->AddInts("qwen35.rope.dimension_sections", sections);
  });
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "qwen3_5");
  EXPECT_EQ(config->layers, 8);  // one block is for drafts
  EXPECT_EQ(config->attention_layers(), 2);
  EXPECT_EQ(config->rotary_dims, 8);
  EXPECT_EQ(config->key_heads, 2);
  EXPECT_EQ(config->value_heads, 4);
  EXPECT_EQ(config->key_dim, 16);
  EXPECT_EQ(config->value_dim, 32);
  EXPECT_TRUE(config->tied_embeddings);
}

TEST_F(GgufConfigTest, NamesTheKey) {
  const auto error = [&](const char* key, std::uint32_t value) {
    return Read(
               [&](testing::GgufWriter* writer) { writer->AddU32(key, value); })
        .status()
        .message();
  };
  EXPECT_THAT(error("qwen35.expert_count", 8), HasSubstr("expert_count"));
  EXPECT_THAT(error("qwen35.full_attention_interval", 0),
              HasSubstr("full_attention_interval"));
  EXPECT_THAT(error("qwen35.attention.value_length", 16),
              HasSubstr("attention.value_length"));
  const auto without = [&](int key) {
    return Read([](testing::GgufWriter*) {}, key).status().message();
  };
  EXPECT_THAT(without(9), HasSubstr("qwen35.ssm.conv_kernel is missing"));
  EXPECT_THAT(without(8), HasSubstr("rope.dimension_count is missing"));
  EXPECT_THAT(without(4), HasSubstr("feed_forward_length is missing"));
}

}  // namespace
}  // namespace holdfast::model
