// Broken model files give a clean error, or load and run: every byte of every
// header changed, and every file cut short.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/model/loader.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/test_sequence.h"
#include "engine/model/testing/tiny_model.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"

namespace holdfast::model {
namespace {

using kernels::WeightType;

constexpr std::size_t kMaxHeader = 16 * 1024;
constexpr int kCuts = 50;
constexpr int kScribbles = 200;
constexpr std::size_t kTensorBytes = 150;  // of a header: a tensor or two

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class FuzzTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto backend = kernels::MakeHostBackend({.threads = 1});
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    backend_ = std::move(backend).value();
    options_.max_rows = 4;
    options_.max_context = 16;
    tiny_.hidden = 32;
    tiny_.layers = 1;
    tiny_.head_dim = 16;
    tiny_.ffn = 32;
    tiny_.max_context = 64;
    tiny_.merges = false;
  }

  // An error must name the file or the folder; a model must run.
  void TryLoad(const std::string& path) {
    const auto loaded = LoadModel(path, *backend_, options_);
    if (!loaded.ok()) {
      ++errors_;
      EXPECT_NE(loaded.status().message().find(path), std::string::npos)
          << loaded.status().message();
      return;
    }
    ++loads_;
    Model& model = *loaded->model;
    const std::vector<std::int32_t> ids = {1, 2, 3};
    std::vector<float> logits(model.info().vocab_size);
    testing::TestSequence sequence(model, 16, std::byte{0});
    SequenceRows rows = sequence.Next(ids);
    rows.last_logits = logits;
    const auto status = model.Forward({&rows, 1});
    EXPECT_TRUE(status.ok()) << status.message();
  }

  // Changes bytes [first, size) of a file one after the other, then restores
  // it.
  void FlipBytes(const std::string& file, std::size_t size,
                 const std::string& model, std::size_t first = 0) {
    ASSERT_LE(size, kMaxHeader);
    const std::string good = ReadFile(file);
    ASSERT_GE(good.size(), size);
    std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
    const auto put = [&](std::size_t at, char value) {
      out.seekp(static_cast<std::streamoff>(at));
      out.put(value);
      out.flush();
    };
    for (std::size_t at = first; at < size; ++at) {
      const char byte = good[at];
      for (const char value : {static_cast<char>(byte ^ 0x01),
                               static_cast<char>(byte ^ 0x80), '\0', '\xff'}) {
        if (value == byte) continue;
        put(at, value);
        TryLoad(model);
      }
      put(at, byte);
    }
  }

  // Replaces runs among a file's last `size` bytes by random ones.
  void Scribble(const std::string& file, std::size_t size,
                const std::string& model, const std::string& good) {
    std::mt19937 random(3);
    for (int i = 0; i < kScribbles; ++i) {
      std::string bytes = good;
      std::size_t at = bytes.size() - size + random() % size;
      for (int run = 0; run < 300 && at < bytes.size(); ++run, ++at) {
        bytes[at] = static_cast<char>(random());
      }
      ASSERT_TRUE(testing::WriteFile(file, bytes).ok());
      TryLoad(model);
    }
    ASSERT_TRUE(testing::WriteFile(file, good).ok());
  }

  void CutShort(const std::string& file, const std::string& model) {
    const std::string good = ReadFile(file);
    for (int cut = 0; cut < kCuts; ++cut) {
      ASSERT_TRUE(
          testing::WriteFile(file, good.substr(0, good.size() * cut / kCuts))
              .ok());
      const int errors = errors_;
      TryLoad(model);
      EXPECT_EQ(errors_, errors + 1) << "loaded when cut at " << cut;
    }
    ASSERT_TRUE(testing::WriteFile(file, good).ok());
  }

  testing::TempFolder folder_;
  std::unique_ptr<kernels::Backend> backend_;
  LoadOptions options_;
  testing::TinyModelOptions tiny_;
  int errors_ = 0;
  int loads_ = 0;
};

TEST_F(FuzzTest, Gguf) {
  const std::string path = folder_.File("model.gguf");
  std::size_t header = 0;
  ASSERT_TRUE(testing::WriteFile(path, testing::TinyGguf(tiny_, &header)).ok());
  TryLoad(path);
  ASSERT_EQ(loads_, 1) << "the unbroken file must load";
  CutShort(path, path);
  FlipBytes(path, header, path);
  EXPECT_GT(errors_, 5000);
  EXPECT_GT(loads_, 5000);
}

// Tensors' names, shapes and types, then their blocks.
TEST_F(FuzzTest, GgufOfBlocks) {
  for (const WeightType type :
       {WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ4_K,
        WeightType::kQ5_K, WeightType::kQ6_K}) {
    SCOPED_TRACE(kernels::WeightTypeName(type));
    errors_ = loads_ = 0;
    testing::TinyModelOptions tiny = tiny_;
    tiny.type = type;
    if (kernels::WeightBlock(type) == 256) {
      tiny.hidden = tiny.ffn = 256;
      tiny.head_dim = 128;
    }
    const std::string path = folder_.File("model.gguf");
    std::size_t header = 0;
    const std::string good = testing::TinyGguf(tiny, &header);
    ASSERT_TRUE(testing::WriteFile(path, good).ok());
    TryLoad(path);
    ASSERT_EQ(loads_, 1) << "the unbroken file must load";
    const std::size_t tensors = good.find("blk.0.attn_q.weight");
    ASSERT_LT(tensors, header);
    FlipBytes(path, std::min(header, tensors + kTensorBytes), path, tensors);
    EXPECT_GT(errors_, 50);
    errors_ = loads_ = 0;
    Scribble(path, good.size() - header, path, good);
    EXPECT_GT(errors_, 0);
    EXPECT_GT(loads_, 0);
  }
}

TEST_F(FuzzTest, FolderOfF8) {
  tiny_.type = WeightType::kF8E4M3;
  const std::string path = folder_.File("model");
  ASSERT_TRUE(testing::WriteTinyFolder(tiny_, path).ok());
  TryLoad(path);
  ASSERT_EQ(loads_, 1) << "the unbroken folder must load";
  const std::string weights = path + "/model.safetensors";
  CutShort(weights, path);
  const std::string good = ReadFile(weights);
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), sizeof header);
  const std::size_t scales = good.find("k_proj.weight_scale_inv");
  ASSERT_LT(scales, header);
  FlipBytes(weights, scales + kTensorBytes, path, scales);
  EXPECT_GT(errors_, 100);
  const std::string config = ReadFile(path + "/config.json");
  const std::size_t quantization = config.find("quantization_config");
  ASSERT_LT(quantization, config.size());
  FlipBytes(path + "/config.json", quantization + kTensorBytes, path,
            quantization);
  Scribble(weights, good.size() - header - sizeof header, path, good);
  EXPECT_GT(loads_, 50);
}

// Two layers, one of each kind, and the drafting head.
testing::TinyModelOptions SmallestHybrid(testing::TinyModelOptions tiny) {
  tiny.architecture = "qwen3_5";
  tiny.layers = 2;
  tiny.hybrid.attention_interval = 2;
  tiny.hybrid.key_heads = 1;
  tiny.hybrid.value_heads = 2;
  tiny.hybrid.key_dim = 16;
  tiny.hybrid.mtp_layers = 1;
  tiny.hybrid.experts = 2;
  tiny.hybrid.top_k = 1;
  return tiny;
}

TEST_F(FuzzTest, HybridGguf) {
  for (const char* architecture : {"qwen3_5", "qwen3_5_moe"}) {
    SCOPED_TRACE(architecture);
    errors_ = loads_ = 0;
    testing::TinyModelOptions tiny = SmallestHybrid(tiny_);
    tiny.architecture = architecture;
    const std::string path = folder_.File("model.gguf");
    std::size_t header = 0;
    const std::string good = testing::TinyGguf(tiny, &header);
    ASSERT_TRUE(testing::WriteFile(path, good).ok());
    TryLoad(path);
    ASSERT_EQ(loads_, 1) << "the unbroken file must load";
    CutShort(path, path);
    const std::size_t keys = good.find(".block_count");
    const std::size_t tokenizer = good.find("tokenizer.ggml.model");
    ASSERT_LT(keys, tokenizer);
    FlipBytes(path, tokenizer, path, keys);
    const std::size_t tensors = good.find("blk.0.ssm_a");
    ASSERT_LT(tensors, header);
    FlipBytes(path, std::min(header, tensors + 8 * kTensorBytes), path,
              tensors);
    EXPECT_GT(errors_, 2000);
    EXPECT_GT(loads_, 20);
    errors_ = loads_ = 0;
    Scribble(path, good.size() - header, path, good);
    EXPECT_GT(errors_, 0);
    EXPECT_GT(loads_, 0);
  }
}

TEST_F(FuzzTest, HybridFolders) {
  for (const char* architecture : {"qwen3_5", "qwen3_5_moe", "qwen3_next"}) {
    SCOPED_TRACE(architecture);
    errors_ = loads_ = 0;
    testing::TinyModelOptions tiny = SmallestHybrid(tiny_);
    tiny.architecture = architecture;
    tiny.hybrid.nested = tiny.architecture == "qwen3_5_moe";
    const std::string path = folder_.File(architecture);
    ASSERT_TRUE(testing::WriteTinyFolder(tiny, path).ok());
    TryLoad(path);
    ASSERT_EQ(loads_, 1) << "the unbroken folder must load";
    const std::string config = path + "/config.json";
    const std::string weights = path + "/model.safetensors";
    CutShort(config, path);
    FlipBytes(config, std::filesystem::file_size(config), path);
    const std::string good = ReadFile(weights);
    std::uint64_t header = 0;
    std::memcpy(&header, good.data(), sizeof header);
    const std::size_t gdn = good.find("linear_attn");
    ASSERT_LT(gdn, header);
    FlipBytes(weights, gdn + 8 * kTensorBytes, path, gdn);
    Scribble(weights, good.size() - header - sizeof header, path, good);
    EXPECT_GT(errors_, 2000);
    EXPECT_GT(loads_, 50);
  }
}

TEST_F(FuzzTest, Folder) {
  const std::string path = folder_.File("model");
  ASSERT_TRUE(testing::WriteTinyFolder(tiny_, path).ok());
  TryLoad(path);
  ASSERT_EQ(loads_, 1) << "the unbroken folder must load";
  const std::string weights = path + "/model.safetensors";
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json",
                           "tokenizer_config.json", "generation_config.json"}) {
    SCOPED_TRACE(name);
    CutShort(path + "/" + name, path);
  }
  std::uint64_t header = 0;
  std::memcpy(&header, ReadFile(weights).data(), sizeof header);
  FlipBytes(weights, sizeof header + header, path);
  for (const char* name : {"config.json", "generation_config.json"}) {
    SCOPED_TRACE(name);
    const std::string file = path + "/" + name;
    FlipBytes(file, std::filesystem::file_size(file), path);
  }
  EXPECT_GT(errors_, 5000);
  EXPECT_GT(loads_, 100);
}

}  // namespace
}  // namespace holdfast::model
