// Folders and GGUF files of the Qwen3.5 family: what they are read as, and what
// is refused.
#include "engine/model/loader.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/safetensors.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/test_sequence.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"

namespace holdfast::model {
namespace {

using kernels::WeightType;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TinyModelOptions;

// All that a model computes of a fixed prompt.
struct Outcome {
  std::vector<float> logits;
  std::string rows;
  std::string sections;
};

void ExpectSame(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.logits.size(), b.logits.size());
  EXPECT_EQ(std::memcmp(a.logits.data(), b.logits.data(),
                        a.logits.size() * sizeof(float)),
            0)
      << "logits differ";
  EXPECT_TRUE(a.rows == b.rows) << "rows differ";
  EXPECT_TRUE(a.sections == b.sections) << "sections differ";
}

class Qwen35LoaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto backend = kernels::MakeHostBackend({.threads = 1});
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    backend_ = std::move(backend).value();
    tiny_ = *testing::TinyVariant("tiny-qwen35");
  }

  kernels::StatusOr<LoadedModel> TryLoad(const std::string& path) {
    LoadOptions options;
    options.max_rows = 64;
    options.max_context = 512;
    return LoadModel(path, *backend_, options);
  }

  std::string Folder(const TinyModelOptions& options) {
    const std::string path = folder_.File("model");
    const auto status = testing::WriteTinyFolder(options, path);
    EXPECT_TRUE(status.ok()) << status.message();
    return path;
  }
  std::string Gguf(const TinyModelOptions& options) {
    const std::string path = folder_.File("model.gguf");
    const auto status = testing::WriteTinyGguf(options, path);
    EXPECT_TRUE(status.ok()) << status.message();
    return path;
  }

  Outcome Run(const std::string& path) {
    const auto loaded = TryLoad(path);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    if (!loaded.ok()) return {};
    Model& model = *loaded->model;
    std::vector<std::int32_t> ids(40);
    for (int i = 0; i < 40; ++i) ids[i] = (i * 37 + 11) % 256;
    Outcome outcome;
    outcome.logits.resize(ids.size() * model.info().vocab_size);
    testing::TestSequence sequence(model, 64, std::byte{0});
    SequenceRows rows = sequence.Next(ids);
    rows.all_logits = outcome.logits;
    const auto status = model.Forward({&rows, 1});
    EXPECT_TRUE(status.ok()) << status.message();
    outcome.rows = sequence.RowBytes(sequence.position());
    outcome.sections = sequence.SectionBytes();
    return outcome;
  }

  std::string ErrorOf(const std::string& path) {
    const auto loaded = TryLoad(path);
    if (loaded.ok()) return "";
    EXPECT_THAT(loaded.status().message(), HasSubstr(path));
    return loaded.status().message();
  }

  static std::string ReadFile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // The error after `from` became `to` in a file of the folder.
  std::string ErrorAfter(const char* name, const std::string& from,
                         const std::string& to) {
    const std::string path = Folder(tiny_);
    const std::string file = path + "/" + name;
    std::string bytes = ReadFile(file);
    const std::size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at == std::string::npos) return "";
    bytes.replace(at, from.size(), to);
    EXPECT_TRUE(testing::WriteFile(file, bytes).ok());
    return ErrorOf(path);
  }

  // The error after a tensor's first bytes were replaced.
  std::string ErrorWithBytes(const std::string& tensor,
                             const std::string& number) {
    const std::string path = Folder(tiny_);
    const std::string file = path + "/model.safetensors";
    std::string bytes = ReadFile(file);
    {
      const auto open = SafetensorsFile::Open(file);
      EXPECT_TRUE(open.ok()) << open.status().message();
      const FileTensor* found = nullptr;
      for (const FileTensor& t : open->tensors()) {
        if (t.name == tensor) found = &t;
      }
      EXPECT_NE(found, nullptr) << tensor;
      if (found == nullptr) return "";
      std::uint64_t header = 0;
      std::memcpy(&header, bytes.data(), sizeof header);
      const std::byte* first = open->tensors().front().data;
      for (const FileTensor& t : open->tensors()) {
        first = std::min(first, t.data);
      }
      bytes.replace(sizeof header + header + (found->data - first),
                    number.size(), number);
    }
    EXPECT_TRUE(testing::WriteFile(file, bytes).ok());
    return ErrorOf(path);
  }

  testing::TempFolder folder_;
  std::unique_ptr<kernels::Backend> backend_;
  TinyModelOptions tiny_;
};

TEST_F(Qwen35LoaderTest, DescribesTheModel) {
  const auto loaded = TryLoad(Folder(tiny_));
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const ModelInfo& info = loaded->model->info();
  EXPECT_EQ(info.architecture, "qwen3_5");
  EXPECT_EQ(info.layers, 4);
  EXPECT_EQ(info.hidden, 64);
  EXPECT_EQ(info.max_context, 512);
  const CacheLayout& layout = loaded->model->layout();
  ASSERT_EQ(layout.views.size(), 2u);
  EXPECT_EQ(layout.views[0].parts, 1u);  // one attention layer
  EXPECT_EQ(layout.views[0].bytes_per_token, 64u * 2);
  ASSERT_EQ(layout.sections.size(), 3u);
  EXPECT_EQ(layout.sections[0].bytes, 3u * 4 * 32 * 32 * 4);
  EXPECT_EQ(layout.sections[1].bytes, 3u * 3 * 256 * 2);
}

// Whatever file the numbers come from, with value heads that a GGUF file has in
// another order: two and three for each key head, or one.
TEST_F(Qwen35LoaderTest, FoldersAndGgufFilesOfTheSameNumbersAreOneModel) {
  tiny_.coarse = true;
  for (const int value_heads : {2, 4, 6}) {
    SCOPED_TRACE(value_heads);
    tiny_.hybrid.value_heads = value_heads;
    tiny_.type = WeightType::kF32;
    const Outcome expected = Run(Folder(tiny_));
    for (const WeightType type : {WeightType::kF16, WeightType::kBF16}) {
      SCOPED_TRACE(kernels::WeightTypeName(type));
      tiny_.type = type;
      ExpectSame(expected, Run(Folder(tiny_)));
      ExpectSame(expected, Run(Gguf(tiny_)));
    }
    tiny_.type = WeightType::kQ8_0;
    ExpectSame(expected, Run(Gguf(tiny_)));
  }
}

TEST_F(Qwen35LoaderTest, ExpertsOfAGgufFileAreTheFolders) {
  tiny_ = *testing::TinyVariant("tiny-qwen35-moe");
  tiny_.coarse = true;
  tiny_.hybrid.mtp_layers = 1;
  const Outcome expected = Run(Folder(tiny_));
  for (const WeightType type : {WeightType::kBF16, WeightType::kQ8_0}) {
    SCOPED_TRACE(kernels::WeightTypeName(type));
    tiny_.type = type;
    ExpectSame(expected, Run(Gguf(tiny_)));
  }
}

TEST_F(Qwen35LoaderTest, NestedConfigurationAndPrefixAreTheSameModel) {
  const Outcome expected = Run(Folder(tiny_));
  tiny_.hybrid.nested = true;
  ExpectSame(expected, Run(Folder(tiny_)));
}

TEST_F(Qwen35LoaderTest, TiedEmbeddingsAreTheHead) {
  tiny_.tied_embeddings = true;
  const Outcome expected = Run(Folder(tiny_));
  ExpectSame(expected, Run(Gguf(tiny_)));
  tiny_.hybrid.nested = true;
  ExpectSame(expected, Run(Folder(tiny_)));
}

TEST_F(Qwen35LoaderTest, LoadsMtpWeightsAndUsesNone) {
  const Outcome expected = Run(Folder(tiny_));
  const auto plain = TryLoad(Folder(tiny_));
  tiny_.hybrid.mtp_layers = 1;
  ExpectSame(expected, Run(Folder(tiny_)));
  ExpectSame(expected, Run(Gguf(tiny_)));
  const auto with_mtp = TryLoad(Folder(tiny_));
  ASSERT_TRUE(plain.ok() && with_mtp.ok());
  EXPECT_GT(with_mtp->model->info().weight_bytes,
            plain->model->info().weight_bytes + 64 * 128 * 4);
  EXPECT_THAT(ErrorAfter("model.safetensors", "mtp.layers.0.self_attn.k_proj",
                         "mtp.layers.0.self_attn.x_proj"),
              HasSubstr("mtp.layers.0.self_attn.k_proj.weight is missing"));
}

TEST_F(Qwen35LoaderTest, F8FoldersAreTheirNumbersWidened) {
  tiny_.type = WeightType::kF8E4M3;
  tiny_.hybrid.value_dim = 128;
  const Outcome stored = Run(Folder(tiny_));
  tiny_.widened = true;
  ExpectSame(stored, Run(Folder(tiny_)));
  tiny_.widened = false;
  TinyModelOptions experts = *testing::TinyVariant("tiny-qwen3-next");
  experts.type = WeightType::kF8E4M3;
  experts.hybrid.value_heads = 2;
  const Outcome stored_experts = Run(Folder(experts));
  experts.widened = true;
  ExpectSame(stored_experts, Run(Folder(experts)));
  // Scales of 128 columns cannot follow heads of 32.
  tiny_.hybrid.value_dim = 32;
  tiny_.hybrid.value_heads = 8;
  EXPECT_THAT(ErrorOf(Folder(tiny_)),
              HasSubstr("layers.0.linear_attn.out_proj.weight (F8_E4M3) has "
                        "scales that span heads"));
  tiny_.hybrid.value_heads = 2;  // one for each key head: in order as they are
  Run(Folder(tiny_));
}

TEST_F(Qwen35LoaderTest, NamesTheTensorOfShapesThatDisagree) {
  const struct {
    const char* from;
    const char* to;
    const char* tensor;
  } cases[] = {
      {"\"linear_num_value_heads\": 4", "\"linear_num_value_heads\": 6",
       "linear_attn.in_proj_qkv.weight has shape [256, 64]"},
      {"\"linear_key_head_dim\": 32", "\"linear_key_head_dim\": 16",
       "linear_attn.in_proj_qkv.weight has shape"},
      {"\"head_dim\": 64", "\"head_dim\": 32",
       "self_attn.q_proj.weight has shape [256, 64]"},
      {"\"intermediate_size\": 96", "\"intermediate_size\": 97",
       "mlp.gate_proj.weight has shape [96, 64]"},
      {"\"vocab_size\": 263", "\"vocab_size\": 264",
       "model.embed_tokens.weight has shape [263, 64]"},
      {"\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5", "layer_types"},
      {"\"linear_attention\", \"full_attention\"",
       "\"full_attention\", \"linear_attention\"",
       "self_attn.q_proj.weight is missing"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ErrorAfter("config.json", c.from, c.to), HasSubstr(c.tensor));
  }
}

TEST_F(Qwen35LoaderTest, NamesTheTensorThatIsMissingOrTooMany) {
  const char* names[] = {
      "layers.1.linear_attn.A_log",
      "layers.0.linear_attn.dt_bias",
      "layers.2.linear_attn.conv1d.weight",
      "layers.0.linear_attn.norm.weight",
      "layers.0.linear_attn.in_proj_z.weight",
      "layers.3.self_attn.q_norm.weight",
      "layers.3.post_attention_layernorm.weight",
  };
  for (const char* name : names) {
    std::string other = name;
    other[0] = 'x';
    EXPECT_THAT(ErrorAfter("model.safetensors", name, other),
                HasSubstr(std::string("tensor model.") + name + " is missing"));
  }
  tiny_.hybrid.mtp_layers = 1;
  EXPECT_THAT(
      ErrorAfter("model.safetensors", "\"mtp.fc.weight\"", "\"mtp.fx.weight\""),
      HasSubstr("tensor mtp.fx.weight is not part"));
}

TEST_F(Qwen35LoaderTest, NamesTheTensorOfAWrongType) {
  EXPECT_THAT(ErrorAfter("model.safetensors",
                         "layers.0.linear_attn.A_log\": {\"dtype\": \"F32\"",
                         "layers.0.linear_attn.A_log\": {\"dtype\": \"I32\""),
              AllOf(HasSubstr("linear_attn.A_log"), HasSubstr("I32")));
  const std::byte numbers[4] = {};
  const FileTensor vector = {
      "dt_bias", WeightType::kF8E4M3, {4}, numbers, sizeof numbers};
  TensorMap tensors("some/folder");
  ASSERT_TRUE(tensors.Add({&vector, 1}).ok());
  const std::int64_t shape[] = {4};
  EXPECT_THAT(tensors.TakeShaped("dt_bias", shape).status().message(),
              AllOf(HasSubstr("some/folder"), HasSubstr("dt_bias [4]"),
                    HasSubstr("F8_E4M3")));
}

TEST_F(Qwen35LoaderTest, NamesTheTensorOfNumbersThatAreNone) {
  const std::string nan("\0\0\xc0\x7f", 4), infinity("\0\0\x80\x7f", 4);
  for (const char* name :
       {"model.layers.0.linear_attn.A_log",
        "model.layers.1.linear_attn.dt_bias",
        "model.layers.0.linear_attn.conv1d.weight",
        "model.layers.2.linear_attn.in_proj_a.weight",
        "model.layers.3.self_attn.k_norm.weight", "lm_head.weight"}) {
    EXPECT_THAT(ErrorWithBytes(name, nan),
                HasSubstr(std::string("tensor ") + name + " holds NaN"));
    EXPECT_THAT(ErrorWithBytes(name, infinity),
                HasSubstr(std::string("tensor ") + name + " holds NaN"));
  }
  const std::string hundred("\0\0\xc8\x42", 4);
  EXPECT_THAT(ErrorWithBytes("model.layers.0.linear_attn.A_log", hundred),
              AllOf(HasSubstr("linear_attn.A_log"), HasSubstr("no decay")));
}

TEST_F(Qwen35LoaderTest, ExpertsAreCheckedLikeTheRest) {
  tiny_ = *testing::TinyVariant("tiny-qwen35-moe");
  EXPECT_THAT(
      ErrorAfter("config.json", "\"num_experts\": 8", "\"num_experts\": 9"),
      HasSubstr("mlp.gate.weight has shape [8, 64]"));
  EXPECT_THAT(ErrorAfter("config.json", "\"num_experts_per_tok\": 2",
                         "\"num_experts_per_tok\": 9"),
              HasSubstr("experts of a token is 9"));
  EXPECT_THAT(ErrorAfter("config.json", "\"moe_intermediate_size\": 32",
                         "\"moe_intermediate_size\": 16"),
              HasSubstr("mlp.experts.gate_up_proj has shape [8, 64, 64]"));
  EXPECT_THAT(ErrorWithBytes("model.layers.1.mlp.experts.down_proj",
                             std::string("\0\0\xc0\x7f", 4)),
              HasSubstr("mlp.experts.down_proj holds NaN"));
  tiny_.hybrid.fused_experts = false;
  EXPECT_THAT(
      ErrorAfter("model.safetensors", "experts.7.up_proj", "experts.9.up_proj"),
      HasSubstr("mlp.experts.7.up_proj.weight is missing"));
}

TEST_F(Qwen35LoaderTest, NamesWhatItKnows) {
  EXPECT_THAT(ErrorAfter("config.json", "qwen3_5_text", "qwen9_5_text"),
              AllOf(HasSubstr("'qwen9_5_text'"), HasSubstr("llama, qwen2, "),
                    HasSubstr("qwen3_5, qwen3_5_moe, qwen3_next")));
  const std::string path = Gguf(tiny_);
  std::string bytes = ReadFile(path);
  bytes.replace(bytes.find("qwen35"), 6, "qwen95");
  ASSERT_TRUE(testing::WriteFile(path, bytes).ok());
  EXPECT_THAT(ErrorOf(path), AllOf(HasSubstr("'qwen95'"), HasSubstr("llama, "),
                                   HasSubstr("qwen35, qwen35moe")));
}

}  // namespace
}  // namespace holdfast::model
