#include "engine/model/loader.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/model/gguf.h"
#include "engine/model/safetensors.h"
#include "engine/model/tensors.h"
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::TestSequence;
using testing::TinyModelOptions;

std::unique_ptr<kernels::Backend> OneThread() {
  auto backend = kernels::MakeHostBackend({.threads = 1});
  EXPECT_TRUE(backend.ok()) << backend.status().message();
  return std::move(backend).value();
}

LoadOptions Small() {
  LoadOptions options;
  options.max_rows = 64;
  options.max_context = 512;
  return options;
}

// Logits of every row of a fixed prompt.
std::vector<float> Logits(Model& model) {
  std::vector<std::int32_t> ids(40);
  for (int i = 0; i < 40; ++i) ids[i] = (i * 37 + 11) % 256;
  std::vector<float> logits(ids.size() * model.info().vocab_size);
  TestSequence sequence(model, 64, std::byte{0});
  SequenceRows rows = sequence.Next(ids);
  rows.all_logits = logits;
  const auto status = model.Forward({&rows, 1});
  EXPECT_TRUE(status.ok()) << status.message();
  return logits;
}

bool SameBytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class LoaderTest : public ::testing::Test {
 protected:
  LoadedModel MustLoad(const std::string& path, kernels::Backend& backend) {
    auto loaded = LoadModel(path, backend, Small());
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return std::move(loaded).value();
  }
  std::string Gguf(const TinyModelOptions& options) {
    const std::string path = folder_.File("model.gguf");
    EXPECT_TRUE(testing::WriteTinyGguf(options, path).ok());
    return path;
  }
  std::string Folder(const TinyModelOptions& options) {
    const std::string path = folder_.File("model");
    EXPECT_TRUE(testing::WriteTinyFolder(options, path).ok());
    return path;
  }

  TempFolder folder_;
};

TEST_F(LoaderTest, DescribesTheModel) {
  const auto backend = OneThread();
  const LoadedModel loaded = MustLoad(Gguf({}), *backend);
  const ModelInfo& info = loaded.model->info();
  EXPECT_EQ(info.name, "tiny-llama");
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.vocab_size, 1024);
  EXPECT_EQ(info.max_context, 512);
  EXPECT_EQ(info.layers, 3);
  EXPECT_EQ(info.hidden, 128);
  EXPECT_GT(info.weight_bytes, 2'000'000u);
  EXPECT_THAT(info.config_digest_input, HasSubstr("llama vocab=1024"));
  const CacheLayout& layout = loaded.model->layout();
  ASSERT_EQ(layout.views.size(), 2u);
  EXPECT_EQ(layout.views[0].name, "K");
  EXPECT_EQ(layout.views[1].name, "V");
  EXPECT_EQ(layout.views[1].bytes_per_token, 3u * 64 * 2);
  EXPECT_EQ(layout.views[1].parts, 3u);
  ASSERT_EQ(layout.sections.size(), 1u);
  EXPECT_EQ(layout.sections[0].name, "h_last");
  EXPECT_EQ(layout.sections[0].bytes, 128u * 4);
  EXPECT_EQ(layout.grid_tokens, 1024u);
  EXPECT_THAT(loaded.files, ElementsAre(folder_.File("model.gguf")));
}

TEST_F(LoaderTest, FolderListsItsFiles) {
  const auto backend = OneThread();
  const std::string path = Folder({});
  const LoadedModel loaded = MustLoad(path, *backend);
  EXPECT_EQ(loaded.model->info().name, "model");
  EXPECT_THAT(loaded.files,
              ::testing::UnorderedElementsAre(
                  path + "/config.json", path + "/model.safetensors",
                  path + "/tokenizer.json", path + "/tokenizer_config.json",
                  path + "/generation_config.json"));
}

// Rows of q and k are permuted in one format and not in the other.
TEST_F(LoaderTest, BothFormatsComputeTheSame) {
  const auto backend = OneThread();
  for (const char* variant : {"tiny-llama", "tiny-bytes", "tiny-linear",
                              "tiny-qwen2", "tiny-qwen3"}) {
    SCOPED_TRACE(variant);
    const TinyModelOptions options = *testing::TinyVariant(variant);
    const auto gguf = Logits(*MustLoad(Gguf(options), *backend).model);
    const auto folder = Logits(*MustLoad(Folder(options), *backend).model);
    EXPECT_TRUE(SameBytes(gguf, folder));
  }
}

// Llama 3's scaling reaches GGUF as divisors, which round once more.
TEST_F(LoaderTest, RopeDivisorsComeCloseToTheirScaling) {
  const auto backend = OneThread();
  const TinyModelOptions options = *testing::TinyVariant("tiny-llama3");
  TinyModelOptions plain = options;
  plain.rope.scaling = RopeConfig::Scaling::kNone;
  const auto gguf = Logits(*MustLoad(Gguf(options), *backend).model);
  const auto folder = Logits(*MustLoad(Folder(options), *backend).model);
  const auto without = Logits(*MustLoad(Gguf(plain), *backend).model);
  float largest = 0, difference = 0, without_difference = 0;
  for (std::size_t i = 0; i < gguf.size(); ++i) {
    largest = std::max(largest, std::fabs(folder[i]));
    difference = std::max(difference, std::fabs(folder[i] - gguf[i]));
    without_difference =
        std::max(without_difference, std::fabs(folder[i] - without[i]));
  }
  EXPECT_LT(difference, 1e-4f * largest);
  EXPECT_GT(without_difference, 1e-3f * largest);
}

TEST_F(LoaderTest, SixteenBitFoldersComputeWhatGgufDoes) {
  const auto backend = OneThread();
  for (WeightType type : {WeightType::kF16, WeightType::kBF16}) {
    TinyModelOptions options;
    options.type = type;
    const auto gguf = Logits(*MustLoad(Gguf(options), *backend).model);
    const auto folder = Logits(*MustLoad(Folder(options), *backend).model);
    EXPECT_TRUE(SameBytes(gguf, folder)) << kernels::WeightTypeName(type);
  }
}

TEST_F(LoaderTest, QuantisedWeightsComeCloseToTheirSource) {
  const auto backend = OneThread();
  const struct {
    WeightType type;
    double most;  // of the mean square difference over that of the logits
  } cases[] = {{WeightType::kQ8_0, 0.01}, {WeightType::kQ4_0, 0.3},
               {WeightType::kQ4_1, 0.3},  {WeightType::kQ5_0, 0.08},
               {WeightType::kQ5_1, 0.08}, {WeightType::kQ4_K, 0.3},
               {WeightType::kQ5_K, 0.08}, {WeightType::kQ6_K, 0.03},
               {WeightType::kF8E4M3, 0.1}};
  for (const auto& c : cases) {
    TinyModelOptions options;
    testing::SetType(c.type, &options);
    const std::string path =
        c.type == WeightType::kF8E4M3 ? Folder(options) : Gguf(options);
    const auto logits = Logits(*MustLoad(path, *backend).model);
    options.type = WeightType::kF32;
    const auto exact = Logits(*MustLoad(Gguf(options), *backend).model);
    double error = 0, sum = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      error += (logits[i] - exact[i]) * (logits[i] - exact[i]);
      sum += exact[i] * exact[i];
    }
    EXPECT_GT(error, 0) << kernels::WeightTypeName(c.type);
    EXPECT_LT(error / sum, c.most) << kernels::WeightTypeName(c.type);
  }
}

TEST_F(LoaderTest, ShardsMakeOneModel) {
  const auto backend = OneThread();
  const auto whole = Logits(*MustLoad(Folder({}), *backend).model);
  std::filesystem::remove_all(folder_.File("model"));
  const std::string path = Folder({.shards = 3});
  const LoadedModel loaded = MustLoad(path, *backend);
  EXPECT_TRUE(SameBytes(whole, Logits(*loaded.model)));
  EXPECT_THAT(loaded.files,
              ::testing::Contains(path + "/model-2-of-3.safetensors"));
  std::filesystem::copy(path + "/model-1-of-3.safetensors",
                        path + "/model-2-of-3.safetensors",
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(LoadModel(path, *backend, Small()).status().message(),
              HasSubstr("occurs twice"));
  std::filesystem::remove(path + "/model-2-of-3.safetensors");
  EXPECT_THAT(LoadModel(path, *backend, Small()).status().message(),
              HasSubstr("model-2-of-3.safetensors"));
}

// Loads a GGUF file after one occurrence of `from` became `to`.
class BrokenGgufTest : public LoaderTest {
 protected:
  std::string ErrorAfter(const TinyModelOptions& options,
                         const std::string& from, const std::string& to) {
    std::string bytes = testing::TinyGguf(options);
    const std::size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    bytes.replace(at, from.size(), to);
    return ErrorOf(bytes);
  }
  // After the tensor's number at `index` was replaced by the bytes.
  std::string ErrorWithNumber(const TinyModelOptions& options,
                              const std::string& tensor, std::size_t offset,
                              const std::string& number) {
    std::string bytes = testing::TinyGguf(options);
    const std::string path = folder_.File("whole.gguf");
    EXPECT_TRUE(testing::WriteFile(path, bytes).ok());
    const auto file = GgufFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.status().message();
    std::size_t bytes_behind = 0;  // tensors lie at the file's end, in order
    for (const FileTensor& t : file->tensors()) {
      if (t.name == tensor) {
        bytes_behind =
            static_cast<std::size_t>(file->tensors().back().data +
                                     file->tensors().back().bytes - t.data);
      }
    }
    EXPECT_GT(bytes_behind, 0u);
    bytes.replace(bytes.size() - bytes_behind + offset, number.size(), number);
    return ErrorOf(bytes);
  }
  std::string ErrorOf(const std::string& bytes) {
    const std::string path = folder_.File("broken.gguf");
    EXPECT_TRUE(testing::WriteFile(path, bytes).ok());
    const auto backend = OneThread();
    const auto loaded = LoadModel(path, *backend, Small());
    return loaded.ok() ? "" : loaded.status().message();
  }
};

TEST_F(BrokenGgufTest, NamesTheTensor) {
  EXPECT_THAT(ErrorAfter({}, "blk.1.attn_q.weight", "blk.1.attn_x.weight"),
              HasSubstr("tensor blk.1.attn_q.weight is missing"));
  EXPECT_THAT(ErrorAfter({}, "blk.2.ffn_up.weight", "blk.9.ffn_up.weight"),
              HasSubstr("tensor blk.2.ffn_up.weight is missing"));
  EXPECT_THAT(ErrorAfter({}, "general.architecture", "general.architectur_"),
              HasSubstr("general.architecture is missing"));
  // A layer more than the configuration knows.
  const std::string key = "llama.block_count";
  const std::string type("\4\0\0\0", 4), three("\3\0\0\0", 4),
      two("\2\0\0\0", 4);
  EXPECT_THAT(ErrorAfter({}, key + type + three, key + type + two),
              HasSubstr("tensor blk.2.attn_k.weight is not part"));
  // 256 rows where 512 are asked for.
  const std::string ffn = "llama.feed_forward_length";
  EXPECT_THAT(ErrorAfter({}, ffn + type + std::string("\0\1\0\0", 4),
                         ffn + type + std::string("\0\2\0\0", 4)),
              HasSubstr("tensor blk.0.ffn_gate.weight has shape [256, 128]"));
}

TEST_F(BrokenGgufTest, RefusesNumbersThatAreNotFinite) {
  const std::string f32_nan("\0\0\xc0\x7f", 4), f16_inf("\0\x7c", 2),
      bf16_nan("\xc0\x7f", 2);
  const auto message = [](const char* tensor) {
    return HasSubstr(std::string("tensor ") + tensor + " holds NaN or inf");
  };
  EXPECT_THAT(ErrorWithNumber({}, "output_norm.weight", 8, f32_nan),
              message("output_norm.weight"));
  EXPECT_THAT(ErrorWithNumber({}, "blk.0.attn_v.weight", 400, f32_nan),
              message("blk.0.attn_v.weight"));
  TinyModelOptions options;
  options.architecture = "qwen2";
  EXPECT_THAT(ErrorWithNumber(options, "blk.1.attn_k.bias", 4, f32_nan),
              message("blk.1.attn_k.bias"));
  options = {.type = WeightType::kF16};
  EXPECT_THAT(ErrorWithNumber(options, "output.weight", 2, f16_inf),
              message("output.weight"));
  options.type = WeightType::kBF16;
  EXPECT_THAT(ErrorWithNumber(options, "output.weight", 2, bf16_nan),
              message("output.weight"));
  // Second block's scale; for Q4_1 its minimum.
  options.type = WeightType::kQ8_0;
  EXPECT_THAT(ErrorWithNumber(options, "blk.0.ffn_up.weight", 34, f16_inf),
              message("blk.0.ffn_up.weight"));
  options.type = WeightType::kQ4_0;
  EXPECT_THAT(ErrorWithNumber(options, "blk.0.ffn_up.weight", 18, f16_inf),
              message("blk.0.ffn_up.weight"));
  options.type = WeightType::kQ4_1;
  EXPECT_THAT(ErrorWithNumber(options, "blk.0.ffn_up.weight", 22, f16_inf),
              message("blk.0.ffn_up.weight"));
  // Quanta may be any bits.
  EXPECT_EQ(ErrorWithNumber(options, "blk.0.ffn_up.weight", 24, f16_inf), "");
  const struct {
    WeightType type;
    std::vector<std::size_t> halves;  // of the second block
    std::size_t quantum;
  } cases[] = {{WeightType::kQ5_0, {22}, 24},
               {WeightType::kQ5_1, {24, 26}, 28},
               {WeightType::kQ4_K, {144, 146}, 148},
               {WeightType::kQ5_K, {176, 178}, 180},
               {WeightType::kQ6_K, {210 + 208}, 210}};
  for (const auto& c : cases) {
    SCOPED_TRACE(kernels::WeightTypeName(c.type));
    options = {};
    testing::SetType(c.type, &options);
    for (const std::size_t half : c.halves) {
      EXPECT_THAT(
          ErrorWithNumber(options, "blk.0.ffn_up.weight", half, f16_inf),
          message("blk.0.ffn_up.weight"));
    }
    EXPECT_EQ(
        ErrorWithNumber(options, "blk.0.ffn_up.weight", c.quantum, f16_inf),
        "");
  }
}

class F8FolderTest : public LoaderTest {
 protected:
  // Loads a folder after each occurrence of `from` in a file became `to`, which
  // is as long.
  std::string ErrorAfter(const char* name, const std::string& from,
                         const std::string& to) {
    std::filesystem::remove_all(folder_.File("model"));
    TinyModelOptions options;
    testing::SetType(WeightType::kF8E4M3, &options);
    const std::string path = Folder(options);
    std::ifstream in(path + "/" + name, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    EXPECT_NE(bytes.find(from), std::string::npos) << from;
    EXPECT_EQ(from.size(), to.size());
    for (std::size_t at = 0; (at = bytes.find(from, at)) != std::string::npos;
         at += to.size()) {
      bytes.replace(at, from.size(), to);
    }
    EXPECT_TRUE(testing::WriteFile(path + "/" + name, bytes).ok());
    const auto backend = OneThread();
    const auto loaded = LoadModel(path, *backend, Small());
    return loaded.ok() ? "" : loaded.status().message();
  }
  // After the first number of a tensor became these bytes.
  std::string ErrorWithNumber(const std::string& tensor,
                              const std::string& number) {
    std::filesystem::remove_all(folder_.File("model"));
    TinyModelOptions options;
    testing::SetType(WeightType::kF8E4M3, &options);
    const std::string path = Folder(options);
    std::size_t behind = 0;
    {
      const auto file = SafetensorsFile::Open(path + "/model.safetensors");
      EXPECT_TRUE(file.ok()) << file.status().message();
      const FileTensor& last = file->tensors().back();
      for (const FileTensor& t : file->tensors()) {
        if (t.name != tensor) continue;
        behind = static_cast<std::size_t>(last.data + last.bytes - t.data);
      }
    }
    EXPECT_GT(behind, 0u);
    std::fstream file(path + "/model.safetensors",
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-static_cast<std::streamoff>(behind), std::ios::end);
    file << number << std::flush;
    const auto backend = OneThread();
    const auto loaded = LoadModel(path, *backend, Small());
    return loaded.ok() ? "" : loaded.status().message();
  }
};

TEST_F(F8FolderTest, NamesWhatItCannotUse) {
  const char* weights = "model.safetensors";
  EXPECT_EQ(ErrorAfter(weights, "pt", "np"), "");
  EXPECT_EQ(ErrorAfter(weights, "_proj.weight_scale_inv\"",
                       "_proj.weight_scale\"    "),
            "");
  EXPECT_THAT(
      ErrorAfter(weights, "k_proj.weight_scale_inv", "k_proj.weight_skale_inv"),
      HasSubstr("k_proj.weight (F8_E4M3) has no scales"));
  EXPECT_THAT(ErrorAfter(weights, "\"dtype\": \"BF16\"", "\"dtype\": \"E8M0\""),
              HasSubstr("type E8M0"));
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  EXPECT_THAT(ErrorWithNumber(name, "\xff"),
              HasSubstr("tensor " + name + " holds NaN"));
  EXPECT_THAT(
      ErrorWithNumber(name + "_scale_inv", std::string("\0\0\xc0\x7f", 4)),
      HasSubstr("tensor " + name + "_scale_inv holds NaN"));
  EXPECT_THAT(
      ErrorWithNumber(name + "_scale_inv", std::string("\0\0\0\x7b", 4)),
      HasSubstr("too large"));
  EXPECT_THAT(ErrorAfter("config.json", "dynamic\"", "static\" "),
              HasSubstr("quantization_config.activation_scheme"));
  EXPECT_THAT(ErrorAfter("config.json", "e4m3", "e5m2"),
              HasSubstr("quantization_config.fmt"));
  EXPECT_THAT(ErrorAfter("config.json", "[128, 128]", "[128, 256]"),
              HasSubstr("quantization_config.weight_block_size"));
  EXPECT_THAT(ErrorAfter("config.json", "\"fp8\"", "\"awq\""),
              HasSubstr("quantization_config.quant_method"));
}

// A scale of the whole tensor, as a number without dimensions.
TEST_F(F8FolderTest, OneScaleForATensor) {
  const std::string numbers("\x38\x40\xb8\x01", 4);  // 1, 2, -1, 2^-9
  std::string data;
  for (int i = 0; i < 2 * 32; ++i) data += numbers[i % 4];
  data += std::string("\0\0\0\x3f", 4);
  const std::string header =
      R"({"w": {"dtype": "F8_E4M3", "shape": [2, 32], "data_offsets": [0, 64]},)"
      R"("w_scale": {"dtype": "F32", "shape": [], "data_offsets": [64, 68]}})";
  const std::uint64_t size = header.size();
  const std::string path = folder_.File("one.safetensors");
  ASSERT_TRUE(testing::WriteFile(
                  path, std::string(reinterpret_cast<const char*>(&size), 8) +
                            header + data)
                  .ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  TensorMap tensors(path);
  ASSERT_TRUE(tensors.Add(file->tensors()).ok());
  const auto weight = tensors.TakeMatrix("w", 2, 32);
  ASSERT_TRUE(weight.ok()) << weight.status().message();
  EXPECT_EQ(tensors.FirstUnused(), std::nullopt);
  const auto backend = OneThread();
  auto matrix = backend->PackMatrix({&*weight, 1});
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  const std::int32_t ids[] = {1};
  float row[32];
  backend->EmbedRows(**matrix, ids, row);
  EXPECT_EQ(row[0], 0.5f);
  EXPECT_EQ(row[1], 1.0f);
  EXPECT_EQ(row[2], -0.5f);
  EXPECT_EQ(row[31], 0x1p-10f);
}

TEST_F(LoaderTest, RefusesAContextPastTheModels) {
  const auto backend = OneThread();
  LoadOptions options = Small();
  options.max_context = 40000;
  const auto loaded = LoadModel(Gguf({}), *backend, options);
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.status().message(), HasSubstr("40000"));
}

TEST_F(LoaderTest, NamesWhatIsMissing) {
  const auto backend = OneThread();
  const auto none = LoadModel(folder_.File("absent"), *backend, Small());
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), kernels::StatusCode::kNotFound);
  EXPECT_THAT(none.status().message(), HasSubstr("absent"));
  const std::string path = Folder({});
  std::filesystem::remove(path + "/tokenizer.json");
  const auto broken = LoadModel(path, *backend, Small());
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.status().message(), HasSubstr("tokenizer.json"));
}

TEST_F(LoaderTest, ForwardRefusesWhatItCannotRun) {
  const auto backend = OneThread();
  const LoadedModel loaded = MustLoad(Gguf({}), *backend);
  Model& model = *loaded.model;
  const auto forward = [&](std::vector<std::int32_t> ids, int position) {
    TestSequence sequence(model, 512, std::byte{0});
    SequenceRows rows = sequence.Next(ids);
    rows.position = position;
    return model.Forward({&rows, 1});
  };
  EXPECT_TRUE(forward({1, 2, 3}, 0).ok());
  EXPECT_THAT(forward({1, 1024}, 0).message(), HasSubstr("token id 1024"));
  EXPECT_THAT(forward({-1}, 0).message(), HasSubstr("token id -1"));
  EXPECT_THAT(forward({}, 0).message(), HasSubstr("without rows"));
  EXPECT_THAT(forward({1, 2}, 511).message(), HasSubstr("context of 512"));
  EXPECT_THAT(forward(std::vector<std::int32_t>(65, 1), 0).message(),
              HasSubstr("64"));
}

}  // namespace
}  // namespace holdfast::model
