// Logits and states against Hugging Face transformers
// (scripts/golden/make_qwen35_golden.py writes the files and says what is in
// them).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/model/loader.h"
#include "engine/model/qwen35/layout.h"
#include "engine/model/testing/golden_file.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/test_sequence.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"

namespace holdfast::model {
namespace {

using testing::TinyHybridOptions;

constexpr double kBound = 1e-4;  // max|a - b| / max|b|
constexpr int kMaxRows = 512;

// Where the reference's order, value heads of a key head side by side, has a
// head that is tiled here.
int Tiled(const TinyHybridOptions& shape, int head) {
  const int ratio = shape.value_heads / shape.key_heads;
  return head % ratio * shape.key_heads + head / ratio;
}

// Number i of the states as the reference has them, [layer][value head]
// [key_dim][value_dim], is this one of section gdn.S.
std::size_t StateIndex(const TinyHybridOptions& shape, std::size_t i) {
  constexpr std::size_t kStripe = 32;
  const std::size_t key_dim = shape.key_dim, value_dim = shape.value_dim;
  const std::size_t v = i % value_dim;
  const std::size_t k = i / value_dim % key_dim;
  const std::size_t head = i / value_dim / key_dim % shape.value_heads;
  const std::size_t layer = i / value_dim / key_dim / shape.value_heads;
  const std::size_t at =
      layer * shape.value_heads + Tiled(shape, static_cast<int>(head));
  const std::size_t stripe = at * (value_dim / kStripe) + v / kStripe;
  return (stripe * key_dim + k) * kStripe + v % kStripe;
}

// The same of the convolutions' inputs, [layer][channel][tap].
std::size_t TailIndex(const TinyHybridOptions& shape, std::size_t i) {
  constexpr std::size_t kTail = 3;
  const std::size_t keys = 2 * std::size_t(shape.key_heads) * shape.key_dim;
  const std::size_t channels =
      keys + std::size_t(shape.value_heads) * shape.value_dim;
  const std::size_t tap = i % kTail;
  std::size_t channel = i / kTail % channels;
  const std::size_t layer = i / kTail / channels;
  if (channel >= keys) {
    const std::size_t value = channel - keys;
    const int head = Tiled(shape, static_cast<int>(value / shape.value_dim));
    channel =
        keys + std::size_t(head) * shape.value_dim + value % shape.value_dim;
  }
  return (layer * kTail + tap) * channels + channel;
}

class Qwen35GoldenTest : public ::testing::Test {
 protected:
  void Load(const std::string& path, const TinyHybridOptions& shape) {
    shape_ = shape;
    auto backend = kernels::MakeHostBackend({.threads = 2});
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    backend_ = std::move(backend).value();
    LoadOptions load;
    load.state_type = kernels::StateType::kF32;
    load.max_rows = kMaxRows;
    load.max_context = 4096;
    auto loaded = LoadModel(path, *backend_, load);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    model_ = std::move(loaded->model);
  }

  // Prefill in launches of `step` rows, all logits kept.
  std::vector<float> Forward(const std::vector<std::int32_t>& ids, int step,
                             testing::TestSequence* sequence) {
    const std::size_t vocab = model_->info().vocab_size;
    std::vector<float> logits(ids.size() * vocab);
    for (std::size_t at = 0; at < ids.size();) {
      const std::size_t rows = std::min<std::size_t>(step, ids.size() - at);
      SequenceRows next =
          sequence->Next(std::span<const std::int32_t>(ids).subspan(at, rows));
      next.all_logits =
          std::span<float>(logits).subspan(at * vocab, rows * vocab);
      const auto status = model_->Forward({&next, 1});
      EXPECT_TRUE(status.ok()) << status.message();
      at += rows;
    }
    return logits;
  }

  void ExpectSections(const testing::GoldenCase& golden,
                      const testing::TestSequence& sequence) {
    const auto number = [&](const char* section, std::size_t index) {
      float value;
      std::memcpy(&value, sequence.SectionData(section) + index * sizeof value,
                  sizeof value);
      return value;
    };
    ASSERT_EQ(golden.sections.size(), 3u);
    testing::GoldenDifference state, tail, hidden;
    state.Add(golden.sections[0], [&](std::size_t i) {
      return number(kGdnState, StateIndex(shape_, i));
    });
    tail.Add(golden.sections[1], [&](std::size_t i) {
      return number(kGdnConv, TailIndex(shape_, i));
    });
    hidden.Add(golden.sections[2],
               [&](std::size_t i) { return number(kHLast, i); });
    EXPECT_LE(state.relative(), kBound);
    EXPECT_LE(tail.relative(), kBound);
    EXPECT_LE(hidden.relative(), kBound);
  }

  // Every case of a golden file.
  void ExpectGolden(const std::string& path) {
    const auto cases = testing::ReadGolden(path);
    ASSERT_FALSE(cases.empty()) << path;
    const std::size_t vocab = model_->info().vocab_size;
    for (const testing::GoldenCase& one : cases) {
      SCOPED_TRACE(one.ids.size());
      testing::TestSequence sequence(*model_, static_cast<int>(one.ids.size()),
                                     std::byte{0xff});
      const std::vector<float> logits = Forward(one.ids, kMaxRows, &sequence);
      testing::GoldenDifference difference;
      for (const testing::GoldenRow& row : one.rows) {
        ASSERT_EQ(row.logits.values.size(),
                  (vocab + row.logits.stride - 1) / row.logits.stride);
        difference.Add(row.logits, [&](std::size_t i) {
          return logits[row.position * vocab + i];
        });
      }
      EXPECT_LE(difference.relative(), kBound);
      ExpectSections(one, sequence);
    }
  }

  TinyHybridOptions shape_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<Model> model_;
};

class Qwen35KindTest : public Qwen35GoldenTest,
                       public ::testing::WithParamInterface<const char*> {};

TEST_P(Qwen35KindTest, MatchesTransformers) {
  const std::string kind = GetParam();
  const testing::TinyModelOptions options = *testing::TinyVariant(kind);
  testing::TempFolder folder;
  const std::string path = folder.File(kind);
  ASSERT_TRUE(testing::WriteTinyFolder(options, path).ok());
  ASSERT_NO_FATAL_FAILURE(Load(path, options.hybrid));
  ExpectGolden("tests/golden/model/" + kind + ".golden");
}

INSTANTIATE_TEST_SUITE_P(Kinds, Qwen35KindTest,
                         ::testing::Values("tiny-qwen35", "tiny-qwen35-moe",
                                           "tiny-qwen3-next"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A folder that transformers wrote, vision tower and all, and the GGUF file
// that llama.cpp's converter made of it.
TEST_F(Qwen35GoldenTest, FilesOfOtherProgramsAreOneModel) {
  const std::string golden = "tests/golden/qwen35/folder.golden";
  const TinyHybridOptions shape = {.key_dim = 16};
  const auto cases = testing::ReadGolden(golden);
  ASSERT_EQ(cases.size(), 1u);
  std::vector<std::vector<float>> logits;
  std::vector<std::string> sections;
  for (const char* name : {"folder", "converted.gguf"}) {
    SCOPED_TRACE(name);
    ASSERT_NO_FATAL_FAILURE(
        Load(std::string("tests/golden/qwen35/") + name, shape));
    ExpectGolden(golden);
    testing::TestSequence sequence(
        *model_, static_cast<int>(cases[0].ids.size()), std::byte{0});
    logits.push_back(Forward(cases[0].ids, kMaxRows, &sequence));
    sections.push_back(sequence.SectionBytes());
  }
  EXPECT_EQ(std::memcmp(logits[0].data(), logits[1].data(),
                        logits[0].size() * sizeof(float)),
            0);
  EXPECT_TRUE(sections[0] == sections[1]);
}

}  // namespace
}  // namespace holdfast::model
