// What the tiny models compute, as committed digests: every build, compiler,
// instruction set and thread count must give these bits, and cached bytes
// depend on them. A change that alters one on purpose raises the backend's
// arithmetic revision and replaces the digests.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/loader.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/test_sequence.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"
#include "kernels/host/testing.h"

namespace holdfast::model {
namespace {

using kernels::StateType;
using kernels::WeightType;
using testing::TinyModelOptions;

constexpr int kRevision = 1;  // of the arithmetic that gave the digests
constexpr int kTokens = 300;

struct Case {
  const char* variant;
  WeightType type;
  StateType state_type;
  const char* digest;
};

constexpr Case kCases[] = {
    {"tiny-llama", WeightType::kF32, StateType::kBF16, "cf9b69e89f8e2c84"},
    {"tiny-llama", WeightType::kF16, StateType::kBF16, "055dbdfbf148f53c"},
    {"tiny-llama", WeightType::kBF16, StateType::kBF16, "0bcf7b712495814a"},
    {"tiny-llama", WeightType::kQ8_0, StateType::kBF16, "97e40341bb6ed206"},
    {"tiny-llama", WeightType::kQ4_0, StateType::kBF16, "d51818cf8d6f0175"},
    {"tiny-llama", WeightType::kQ4_1, StateType::kBF16, "7c6da23bb746d679"},
    {"tiny-llama", WeightType::kQ5_0, StateType::kBF16, "9284f1a6e1deb31b"},
    {"tiny-llama", WeightType::kQ5_1, StateType::kBF16, "842d7df45436f91d"},
    {"tiny-llama", WeightType::kQ4_K, StateType::kBF16, "50f3e0f97adf57b6"},
    {"tiny-llama", WeightType::kQ5_K, StateType::kBF16, "9d43efb81da6d775"},
    {"tiny-llama", WeightType::kQ6_K, StateType::kBF16, "e73414afd0c81d53"},
    {"tiny-llama", WeightType::kF8E4M3, StateType::kBF16, "6bb27191b084dd28"},
    {"tiny-llama", WeightType::kF32, StateType::kF32, "ca66613becca95f8"},
    {"tiny-llama3", WeightType::kF32, StateType::kBF16, "51eb747c3d72bdcc"},
    {"tiny-qwen2", WeightType::kF32, StateType::kBF16, "555521d792279d7c"},
    {"tiny-qwen3", WeightType::kF32, StateType::kBF16, "0b77224b4dca077e"},
    {"tiny-qwen35", WeightType::kF32, StateType::kBF16, "cafc6779868f36b6"},
    {"tiny-qwen35", WeightType::kF32, StateType::kF32, "7d86e97fb6763dd9"},
    {"tiny-qwen35", WeightType::kQ4_K, StateType::kBF16, "8e110942922cecda"},
    {"tiny-qwen35-moe", WeightType::kF32, StateType::kBF16, "6662794d69b08f97"},
    {"tiny-qwen35-moe", WeightType::kQ4_1, StateType::kBF16,
     "ec9c36812984adb1"},
    {"tiny-qwen3-next", WeightType::kBF16, StateType::kBF16,
     "2199f032f1cd222b"},
};

// 64-bit FNV-1a.
class Digest {
 public:
  void Add(std::string_view bytes) {
    for (char c : bytes) {
      value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    }
  }
  std::string Hex() const {
    char text[17];
    std::snprintf(text, sizeof text, "%016" PRIx64, value_);
    return text;
  }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

// A GGUF file where one can hold the model, or a folder.
enum class Format { kGgufIfItCan, kFolder };

struct Conditions {
  StateType state_type = StateType::kBF16;
  int threads = 1;
  int tokens = kTokens;
  Format format = Format::kGgufIfItCan;
};

// Of all logits, whole granules of rows, and sections.
std::string DigestOf(const TinyModelOptions& tiny, const Conditions& run) {
  testing::TempFolder folder;
  const std::string path = folder.File("model");
  const auto written =
      run.format == Format::kFolder || testing::IsFolderOnly(tiny)
          ? testing::WriteTinyFolder(tiny, path)
          : testing::WriteTinyGguf(tiny, path);
  EXPECT_TRUE(written.ok()) << written.message();
  auto backend = kernels::MakeHostBackend({.threads = run.threads});
  EXPECT_TRUE(backend.ok()) << backend.status().message();
  EXPECT_EQ((*backend)->info().arithmetic_revision, kRevision);
  LoadOptions options;
  options.state_type = run.state_type;
  options.max_rows = run.tokens;
  options.max_context = 512;
  auto loaded = LoadModel(path, **backend, options);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  Model& model = *loaded->model;

  std::vector<std::int32_t> ids(run.tokens);
  for (int i = 0; i < run.tokens; ++i) {
    ids[i] = (i * i + 7 * i) % model.info().vocab_size;
  }
  std::vector<float> logits(ids.size() * model.info().vocab_size);
  testing::TestSequence sequence(model, run.tokens, std::byte{0});
  SequenceRows rows = sequence.Next(ids);
  rows.all_logits = logits;
  EXPECT_TRUE(model.Forward({&rows, 1}).ok());
  Digest digest;
  digest.Add({reinterpret_cast<const char*>(logits.data()),
              logits.size() * sizeof(float)});
  digest.Add(sequence.RowBytes(run.tokens));
  digest.Add(sequence.SectionBytes());
  return digest.Hex();
}

TEST(DigestTest, EveryBuildGivesTheCommittedBits) {
  for (const Case& c : kCases) {
    TinyModelOptions tiny = *testing::TinyVariant(c.variant);
    testing::SetType(c.type, &tiny);
    EXPECT_EQ(DigestOf(tiny, {.state_type = c.state_type}), c.digest)
        << c.variant << ", " << kernels::WeightTypeName(c.type);
  }
}

// The same numbers in three formats, as folder and as GGUF file, with every
// instruction set.
TEST(DigestTest, TheTinyHybridGivesTheCommittedBitsFromAnyStorage) {
  constexpr char kDigest[] = "bd7c3d66371d5dd2";
  TinyModelOptions tiny = *testing::TinyVariant("tiny-hybrid");
  tiny.coarse = true;
  kernels::testing::ForEachTarget([&](const std::string& target) {
    SCOPED_TRACE(target);
    // Few tokens: emulated CPUs run this too.
    Conditions run = {.threads = 2, .tokens = 130};
    for (WeightType type :
         {WeightType::kF32, WeightType::kBF16, WeightType::kQ8_0}) {
      tiny.type = type;
      EXPECT_EQ(DigestOf(tiny, run), kDigest) << kernels::WeightTypeName(type);
    }
    tiny.type = WeightType::kBF16;
    run.format = Format::kFolder;
    run.threads = 1;
    EXPECT_EQ(DigestOf(tiny, run), kDigest);
  });
}

// Weights give the same answers in the file's storage and widened to floats.
TEST(DigestTest, StorageOfWeightsChangesNothing) {
  for (WeightType type :
       {WeightType::kF16, WeightType::kBF16, WeightType::kQ8_0,
        WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ5_0,
        WeightType::kQ5_1, WeightType::kQ4_K, WeightType::kQ5_K,
        WeightType::kQ6_K, WeightType::kF8E4M3}) {
    TinyModelOptions stored;
    testing::SetType(type, &stored);
    TinyModelOptions widened = stored;
    widened.widened = true;
    EXPECT_EQ(DigestOf(stored, {.threads = 2}),
              DigestOf(widened, {.threads = 2}))
        << kernels::WeightTypeName(type);
  }
  for (WeightType type : {WeightType::kQ4_1, WeightType::kQ6_K}) {
    TinyModelOptions stored = *testing::TinyVariant("tiny-qwen35");
    testing::SetType(type, &stored);
    TinyModelOptions widened = stored;
    widened.widened = true;
    EXPECT_EQ(DigestOf(stored, {.threads = 2}),
              DigestOf(widened, {.threads = 2}))
        << "hybrid, " << kernels::WeightTypeName(type);
  }
}

}  // namespace
}  // namespace holdfast::model
