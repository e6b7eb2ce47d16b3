// However rows are split into launches, spread over threads or joined with
// other sequences, and whatever lay in the pool before: logits, rows and
// sections are equal bit for bit.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/model/loader.h"
#include "engine/model/testing/temp_folder.h"
#include "engine/model/testing/test_sequence.h"
#include "engine/model/testing/tiny_model.h"
#include "engine/model/testing/tiny_variants.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"

namespace holdfast::model {
namespace {

using kernels::StateType;
using kernels::WeightType;
using testing::TestSequence;
using testing::TinyModelOptions;

constexpr int kTokens = 530;  // past two blocks, inside a granule
constexpr int kMaxRows = 1024;
constexpr std::byte kDirty{0xff};  // every number a NaN

struct Case {
  const char* name;
  const char* variant;
  WeightType type;
  StateType state_type;
};

// What a sequence has left behind.
struct Outcome {
  std::vector<float> logits;  // of every row
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

std::vector<std::int32_t> Prompt(int tokens, int seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> ids(tokens);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % 260);
  return ids;
}

// Lengths up to `longest` that sum up to `tokens`.
std::vector<int> RandomSplit(int tokens, int longest, int seed) {
  std::mt19937 random(seed);
  std::vector<int> parts;
  while (tokens > 0) {
    const int part = std::min<int>(tokens, 1 + random() % longest);
    parts.push_back(part);
    tokens -= part;
  }
  return parts;
}

class ExactTest : public ::testing::TestWithParam<Case> {
 protected:
  struct Loaded {
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<Model> model;
  };

  Loaded Load(int threads, int max_rows = kMaxRows) {
    const std::string path = folder_.File("model");
    TinyModelOptions options = *testing::TinyVariant(GetParam().variant);
    testing::SetType(GetParam().type, &options);
    const auto written = testing::IsFolderOnly(options)
                             ? testing::WriteTinyFolder(options, path)
                             : testing::WriteTinyGguf(options, path);
    EXPECT_TRUE(written.ok()) << written.message();
    auto backend = kernels::MakeHostBackend({.threads = threads});
    EXPECT_TRUE(backend.ok()) << backend.status().message();
    LoadOptions load;
    load.state_type = GetParam().state_type;
    load.max_rows = max_rows;
    load.max_context = 2048;
    auto loaded = LoadModel(path, **backend, load);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return {std::move(backend).value(), std::move(loaded->model)};
  }

  // Forwards a prompt in launches of the given lengths.
  Outcome Run(Model& model, const std::vector<std::int32_t>& ids,
              const std::vector<int>& parts, std::byte fill) {
    const std::size_t vocab = model.info().vocab_size;
    Outcome outcome;
    outcome.logits.resize(ids.size() * vocab);
    TestSequence sequence(model, static_cast<int>(ids.size()), fill);
    for (int part : parts) {
      const std::size_t at = sequence.position();
      SequenceRows rows =
          sequence.Next(std::span<const std::int32_t>(ids).subspan(at, part));
      rows.all_logits =
          std::span<float>(outcome.logits).subspan(at * vocab, part * vocab);
      const auto status = model.Forward({&rows, 1});
      EXPECT_TRUE(status.ok()) << status.message();
    }
    Finish(sequence, &outcome);
    return outcome;
  }

  static void Finish(const TestSequence& sequence, Outcome* outcome) {
    outcome->rows = sequence.RowBytes(sequence.position());
    outcome->sections = sequence.SectionBytes();
  }

  testing::TempFolder folder_;
};

TEST_P(ExactTest, AnySplitAndThreadCountOnADirtyPool) {
  const Loaded one = Load(1);
  const Loaded two = Load(2);
  const auto ids = Prompt(kTokens, 1);
  const Outcome whole = Run(*one.model, ids, {kTokens}, std::byte{0});
  EXPECT_FALSE(whole.rows.empty());
  const std::vector<int> single(kTokens, 1);
  for (const Loaded* loaded : {&one, &two}) {
    SCOPED_TRACE(loaded == &one ? "one thread" : "two threads");
    ExpectSame(whole, Run(*loaded->model, ids, {kTokens}, kDirty));
    ExpectSame(whole, Run(*loaded->model, ids, single, kDirty));
    for (int seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(seed);
      const int longest = seed % 2 == 0 ? 20 : 300;
      ExpectSame(whole, Run(*loaded->model, ids,
                            RandomSplit(kTokens, longest, seed), kDirty));
    }
  }
}

TEST_P(ExactTest, SequencesInOneLaunchDoNotTouchEachOther) {
  const Loaded loaded = Load(2);
  Model& model = *loaded.model;
  const std::size_t vocab = model.info().vocab_size;
  const std::vector<int> lengths = {kTokens, 257, 33, 400};
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<Outcome> alone, joined(lengths.size());
  std::vector<std::unique_ptr<TestSequence>> sequences;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    prompts.push_back(Prompt(lengths[s], static_cast<int>(s)));
    alone.push_back(Run(model, prompts[s], {lengths[s]}, std::byte{0}));
    joined[s].logits.resize(lengths[s] * vocab);
    sequences.push_back(
        std::make_unique<TestSequence>(model, lengths[s], kDirty));
  }
  std::mt19937 random(7);
  while (true) {
    std::vector<SequenceRows> launch;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      const int at = sequences[s]->position();
      const int rows = std::min<int>(lengths[s] - at, random() % 90);
      if (rows == 0) continue;
      launch.push_back(sequences[s]->Next(
          std::span<const std::int32_t>(prompts[s]).subspan(at, rows)));
      launch.back().all_logits =
          std::span<float>(joined[s].logits).subspan(at * vocab, rows * vocab);
    }
    const bool done = std::all_of(sequences.begin(), sequences.end(),
                                  [&, s = 0](const auto& q) mutable {
                                    return q->position() == lengths[s++];
                                  });
    if (launch.empty() && done) break;
    const auto status = model.Forward(launch);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    SCOPED_TRACE(s);
    Finish(*sequences[s], &joined[s]);
    ExpectSame(alone[s], joined[s]);
  }
}

// Logits asked for the last row alone are those of that row among all, and so
// are those made later of what it left in the sections.
TEST_P(ExactTest, LastLogitsAreTheLastRows) {
  const Loaded loaded = Load(1);
  Model& model = *loaded.model;
  const std::size_t vocab = model.info().vocab_size;
  const auto ids = Prompt(70, 3);
  const Outcome whole = Run(model, ids, {70}, std::byte{0});
  std::vector<float> last(vocab);
  TestSequence sequence(model, 70, kDirty);
  SequenceRows rows = sequence.Next(ids);
  rows.last_logits = last;
  const float* expected = whole.logits.data() + 69 * vocab;
  ASSERT_TRUE(model.Forward({&rows, 1}).ok());
  EXPECT_EQ(std::memcmp(last.data(), expected, vocab * sizeof(float)), 0);
  const std::string sections = sequence.SectionBytes();
  std::fill(last.begin(), last.end(), 0.0f);
  ASSERT_TRUE(model.LogitsFromHidden(rows.sections, last).ok());
  EXPECT_EQ(std::memcmp(last.data(), expected, vocab * sizeof(float)), 0);
  EXPECT_EQ(sequence.SectionBytes(), sections);
  EXPECT_FALSE(
      model.LogitsFromHidden(rows.sections, std::span(last).first(3)).ok());
}

// All rows and the last once more: more logits than rows prepared for.
TEST_P(ExactTest, BothLogitsOfALaunchOfOneRow) {
  const Loaded loaded = Load(1, /*max_rows=*/1);
  Model& model = *loaded.model;
  const std::size_t vocab = model.info().vocab_size;
  std::vector<float> all(vocab), last(vocab);
  const std::vector<std::int32_t> ids = {5};
  TestSequence sequence(model, 1, kDirty);
  SequenceRows rows = sequence.Next(ids);
  rows.all_logits = all;
  rows.last_logits = last;
  ASSERT_TRUE(model.Forward({&rows, 1}).ok());
  EXPECT_EQ(std::memcmp(all.data(), last.data(), vocab * sizeof(float)), 0);
  const Loaded wide = Load(1);
  const Outcome expected = Run(*wide.model, ids, {1}, std::byte{0});
  EXPECT_EQ(
      std::memcmp(all.data(), expected.logits.data(), vocab * sizeof(float)),
      0);
}

INSTANTIATE_TEST_SUITE_P(
    Models, ExactTest,
    ::testing::Values(
        Case{"llama_f32", "tiny-llama", WeightType::kF32, StateType::kBF16},
        Case{"llama_q4_1", "tiny-llama", WeightType::kQ4_1, StateType::kBF16},
        Case{"llama_q4_k", "tiny-llama", WeightType::kQ4_K, StateType::kBF16},
        Case{"qwen3_f32_state", "tiny-qwen3", WeightType::kBF16,
             StateType::kF32},
        Case{"qwen35_f32", "tiny-qwen35", WeightType::kF32, StateType::kBF16},
        Case{"qwen35_q8_0", "tiny-qwen35", WeightType::kQ8_0, StateType::kBF16},
        Case{"qwen35_moe", "tiny-qwen35-moe", WeightType::kBF16,
             StateType::kBF16},
        Case{"qwen3_next_f32_state", "tiny-qwen3-next", WeightType::kF32,
             StateType::kF32}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace holdfast::model
