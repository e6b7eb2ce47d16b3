// The gated delta net is equal bit for bit, rows, tail and state, in one piece,
// in any split, in any company, on any memory, thread count and instruction
// set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/host/gdn_testing.h"
#include "kernels/host/testing.h"

namespace holdfast::kernels {
namespace {

using testing::GdnLayer;
using testing::GdnSections;
using testing::Random;

constexpr int kTokens = 600;

std::unique_ptr<Backend> Prepared(const GdnShape& shape, int threads) {
  auto backend = testing::MakeBackend(threads);
  Limits limits = testing::TestLimits();
  limits.gdn = shape;
  EXPECT_TRUE(backend->Prepare(limits).ok());
  return backend;
}

struct Result {
  std::vector<float> out;
  GdnSections sections;
};

class GdnExactTest : public ::testing::TestWithParam<GdnShape> {
 protected:
  GdnExactTest()
      : shape_(GetParam()),
        layer_(shape_, 7),
        width_(shape_.ProjectedWidth()),
        rows_(layer_.Rows(kTokens)),
        backend_(Prepared(shape_, 2)) {
    // Gates shut and open, and a head whose keys are zero.
    for (int i = shape_.Channels() + shape_.ValueWidth(); i < width_; ++i) {
      rows_[40 * width_ + i] = 90.0f;
      rows_[41 * width_ + i] = -90.0f;
    }
    for (int r = 60; r < 65; ++r) {
      std::fill_n(&rows_[r * width_], 2 * shape_.KeyWidth(), 0.0f);
    }
  }

  Result Start(std::uint32_t fill) const {
    return {std::vector<float>(std::size_t(kTokens) * shape_.ValueWidth(), NAN),
            GdnSections(shape_, fill)};
  }

  // Tokens [from, to) in one launch.
  void Forward(Backend& backend, int from, int to, Result& result) {
    const RowSpan span = {nullptr, 0, from, to - from, result.sections.data()};
    backend.GatedDeltaNet(shape_, layer_.weights(), result.sections.place(),
                          &rows_[std::size_t(from) * width_], width_,
                          {&span, 1},
                          &result.out[std::size_t(from) * shape_.ValueWidth()]);
  }

  // Launches of the given sizes, repeated.
  Result Split(Backend& backend, const std::vector<int>& sizes,
               std::uint32_t fill) {
    Result result = Start(fill);
    std::size_t next = 0;
    for (int position = 0; position < kTokens;) {
      const int rows =
          std::min(sizes[next++ % sizes.size()], kTokens - position);
      Forward(backend, position, position + rows, result);
      position += rows;
    }
    return result;
  }

  void ExpectSame(const Result& got, const Result& want,
                  const std::string& what) {
    const int width = shape_.ValueWidth();
    for (int r = 0; r < kTokens; ++r) {
      ASSERT_EQ(0, std::memcmp(&got.out[r * width], &want.out[r * width],
                               width * sizeof(float)))
          << what << ": row " << r;
    }
    ASSERT_TRUE(got.sections == want.sections) << what << ": sections";
  }

  GdnShape shape_;
  GdnLayer layer_;
  int width_;
  std::vector<float> rows_;
  std::unique_ptr<Backend> backend_;
};

// The bytes around a layer's tail and state keep what they were, so sections
// are compared with a run over the same fill.
TEST_P(GdnExactTest, EverySplit) {
  for (const std::uint32_t fill : {testing::kQuietNan, testing::kInfinity}) {
    const Result whole = Split(*backend_, {kTokens}, fill);
    for (const float value : whole.out) ASSERT_TRUE(std::isfinite(value));
    ExpectSame(Split(*backend_, {1}, fill), whole, "row by row");
    ExpectSame(Split(*backend_, {2}, fill), whole, "pairs");
    ExpectSame(Split(*backend_, {256}, fill), whole, "blocks");
    ExpectSame(Split(*backend_, {257, 1}, fill), whole, "block and a row");
    ExpectSame(Split(*backend_, {1, 2, 3, 4, 5, 6, 7, 8, 9, 33}, fill), whole,
               "growing pieces");
  }
  const Result whole = Split(*backend_, {kTokens}, 0);
  Random random(5);
  for (int round = 0; round < 4; ++round) {
    std::vector<int> sizes;
    for (int i = 0; i < 40; ++i) sizes.push_back(1 + random.Below(200));
    ExpectSame(Split(*backend_, sizes, 0), whole, "random split");
  }
}

TEST_P(GdnExactTest, EveryTargetAndThreadCount) {
  const Result whole = Split(*backend_, {kTokens}, 0);
  testing::ForEachTarget([&](const std::string& name) {
    for (int threads = 1; threads <= 3; ++threads) {
      auto backend = Prepared(shape_, threads);
      ExpectSame(Split(*backend, {kTokens}, 0), whole, name + " one piece");
      ExpectSame(Split(*backend, {300, 1, 1, 40, 8, 9}, 0), whole,
                 name + " pieces");
    }
  });
}

// Sequences at different positions in one launch: a prefill that takes more
// than one pass between decode rows and a short piece, against each alone.
TEST_P(GdnExactTest, SequencesTogether) {
  const Result whole = Split(*backend_, {kTokens}, 0);
  const struct {
    int from;
    int rows;
  } parts[] = {{17, 1}, {30, 500}, {0, 1}, {0, 2}, {599, 1}, {5, 90}, {128, 1}};
  std::vector<Result> results;
  std::vector<float> joined;
  std::vector<RowSpan> spans;
  int row = 0;
  for (const auto& part : parts) {
    results.push_back(Start(0));
    if (part.from > 0) Forward(*backend_, 0, part.from, results.back());
    const auto first = rows_.begin() + std::size_t(part.from) * width_;
    joined.insert(joined.end(), first, first + std::size_t(part.rows) * width_);
    spans.push_back({nullptr, row, part.from, part.rows, nullptr});
    row += part.rows;
  }
  for (std::size_t i = 0; i < spans.size(); ++i) {
    spans[i].sections = results[i].sections.data();
  }
  const int width = shape_.ValueWidth();
  std::vector<float> out(std::size_t(row) * width, NAN);
  backend_->GatedDeltaNet(shape_, layer_.weights(), results[0].sections.place(),
                          joined.data(), width_, spans, out.data());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(0,
              std::memcmp(&out[std::size_t(spans[i].first_row) * width],
                          &whole.out[std::size_t(parts[i].from) * width],
                          std::size_t(parts[i].rows) * width * sizeof(float)))
        << "part " << i;
    Result& rest = results[i];
    if (const int next = parts[i].from + parts[i].rows; next < kTokens) {
      Forward(*backend_, next, kTokens, rest);
    }
    EXPECT_TRUE(rest.sections == whole.sections) << "part " << i;
  }
}

// A copy of the sections is all that a sequence needs to go on.
TEST_P(GdnExactTest, ResumesFromACopy) {
  const Result whole = Split(*backend_, {kTokens}, 0);
  for (const int position : {1, 2, 3, 4, 255, 256, 257, 511, 599}) {
    Result first = Start(0);
    Forward(*backend_, 0, position, first);
    Result resumed = {first.out, first.sections};
    Forward(*backend_, position, kTokens, first);
    Forward(*backend_, position, kTokens, resumed);
    ExpectSame(resumed, whole, "from " + std::to_string(position));
  }
}

// A sequence that starts does not see what an earlier one left.
TEST_P(GdnExactTest, UsedSections) {
  const Result whole = Split(*backend_, {kTokens}, 0);
  Result used = Start(0);
  Forward(*backend_, 0, 77, used);
  for (const int rows : {1, kTokens}) {
    for (int position = 0; position < kTokens; position += rows) {
      Forward(*backend_, position, position + rows, used);
    }
    ExpectSame(used, whole, "used sections");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, GdnExactTest,
    ::testing::Values(
        GdnShape{2, 2, 128, 128, GdnHeads::kGrouped, StateType::kBF16},
        GdnShape{2, 6, 64, 96, GdnHeads::kGrouped, StateType::kF32},
        GdnShape{3, 6, 32, 64, GdnHeads::kTiled, StateType::kBF16},
        GdnShape{1, 1, 256, 256, GdnHeads::kGrouped, StateType::kBF16},
        GdnShape{1, 5, 16, 32, GdnHeads::kGrouped, StateType::kBF16}),
    [](const auto& info) {
      const GdnShape& s = info.param;
      return "H" + std::to_string(s.key_heads) + "x" +
             std::to_string(s.value_heads) + "D" + std::to_string(s.key_dim) +
             "x" + std::to_string(s.value_dim) +
             (s.heads == GdnHeads::kTiled ? "Tiled" : "Grouped") +
             (s.state_type == StateType::kBF16 ? "Bf16" : "F32");
    });

}  // namespace
}  // namespace holdfast::kernels
