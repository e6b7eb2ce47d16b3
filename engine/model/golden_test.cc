// Logits against Hugging Face transformers (scripts/golden/make_llama_golden.py
// writes the files and says what is in them).
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/loader.h"
#include "engine/model/testing/golden_file.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/test_sequence.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"

namespace holdfast::model {
namespace {

constexpr double kBound = 1e-4;  // max|a - b| / max|b|

// Prefill in launches of up to max_rows, all logits kept.
std::vector<float> Logits(Model& model, const std::vector<std::int32_t>& ids,
                          int max_rows) {
  const std::size_t vocab = model.info().vocab_size;
  std::vector<float> logits(ids.size() * vocab);
  testing::TestSequence sequence(model, static_cast<int>(ids.size()),
                                 std::byte{0xff});
  for (std::size_t at = 0; at < ids.size();) {
    const std::size_t rows = std::min<std::size_t>(max_rows, ids.size() - at);
    SequenceRows next =
        sequence.Next(std::span<const std::int32_t>(ids).subspan(at, rows));
    next.all_logits =
        std::span<float>(logits).subspan(at * vocab, rows * vocab);
    const auto status = model.Forward({&next, 1});
    EXPECT_TRUE(status.ok()) << status.message();
    at += rows;
  }
  return logits;
}

void ExpectGolden(const std::string& golden_path, const std::string& model_path,
                  int max_context) {
  const auto cases = testing::ReadGolden(golden_path);
  ASSERT_FALSE(cases.empty()) << golden_path;
  auto backend = kernels::MakeHostBackend({.threads = 2});
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  LoadOptions options;
  options.state_type = kernels::StateType::kF32;
  options.max_rows = 512;
  options.max_context = max_context;
  auto loaded = LoadModel(model_path, **backend, options);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const std::size_t vocab = loaded->model->info().vocab_size;
  for (const testing::GoldenCase& one : cases) {
    const std::vector<float> logits =
        Logits(*loaded->model, one.ids, options.max_rows);
    testing::GoldenDifference difference;
    for (const testing::GoldenRow& row : one.rows) {
      const std::uint32_t stride = row.logits.stride;
      ASSERT_EQ(row.logits.values.size(), (vocab + stride - 1) / stride);
      difference.Add(row.logits, [&](std::size_t i) {
        return logits[row.position * vocab + i];
      });
    }
    EXPECT_LE(difference.relative(), kBound) << one.ids.size() << " tokens";
  }
}

class TinyGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyGoldenTest, MatchesTransformers) {
  const std::string kind = GetParam();
  testing::TempFolder folder;
  const std::string path = folder.File(kind);
  const auto status =
      testing::WriteTinyFolder(*testing::TinyVariant(kind), path);
  ASSERT_TRUE(status.ok()) << status.message();
  ExpectGolden("tests/golden/model/" + kind + ".logits", path, 2048);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TinyGoldenTest,
                         ::testing::Values("tiny-llama", "tiny-llama3",
                                           "tiny-linear", "tiny-qwen2",
                                           "tiny-qwen3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(DemoModelGoldenTest, MatchesTransformers) {
  const std::string path = HOLDFAST_DEMO_MODEL;
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "NOT TESTED: the demo model is not at " << path
                 << " (CMake variable HOLDFAST_DEMO_MODEL; scripts/setup "
                    "fetches it)";
  }
  ExpectGolden("tests/golden/model/smollm2-135m-instruct-q4_1.logits", path,
               1024);
}

}  // namespace
}  // namespace holdfast::model
