// Every operation against its double-precision twin.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernels/host/testing.h"
#include "kernels/portable_math.h"
#include "kernels/reference/reference.h"

namespace holdfast::kernels {
namespace {

using reference::FromFloats;
using reference::Numbers;
using testing::MakeBackend;
using testing::OwnedTensor;
using testing::Random;

void ExpectNear(const std::vector<float>& got, const Numbers& want,
                double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance) << "at " << i;
  }
}

class ProductTest : public ::testing::TestWithParam<WeightType> {};

TEST_P(ProductTest, EqualsTwin) {
  const WeightType type = GetParam();
  Random random(1);
  auto backend = MakeBackend(2);
  for (const auto& [rows, outputs, least_cols] :
       {std::array{1, 32, 64}, std::array{3, 100, 576}, std::array{13, 7, 32},
        std::array{50, 65, 416}, std::array{130, 96, 224}}) {
    const int cols = testing::WholeBlocks(type, least_cols);
    const OwnedTensor w = RandomTensor(random, type, outputs, cols);
    const auto x = random.Floats(rows * cols);
    const auto bias = random.Floats(outputs);
    auto matrix = backend->PackMatrix({&w.tensor, 1});
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    std::vector<float> y(rows * outputs, NAN);
    const Numbers widened = reference::Widen(w.tensor);
    backend->MatMul(**matrix, x.data(), rows, bias.data(), y.data());
    // Rounding errors grow with the sum of magnitudes, here below cols.
    const double tolerance = 1e-6 * cols;
    ExpectNear(
        y, reference::MatMul(widened, cols, FromFloats(x), FromFloats(bias)),
        tolerance);
    backend->MatMul(**matrix, x.data(), rows, nullptr, y.data());
    ExpectNear(y, reference::MatMul(widened, cols, FromFloats(x), {}),
               tolerance);
  }
}

TEST_P(ProductTest, EmbeddingEqualsWidenedRows) {
  Random random(2);
  auto backend = MakeBackend(2);
  const int cols = testing::WholeBlocks(GetParam(), 96);
  OwnedTensor table = RandomTensor(random, GetParam(), 75, cols);
  auto matrix = backend->PackMatrix({&table.tensor, 1});
  ASSERT_TRUE(matrix.ok());
  std::vector<std::int32_t> ids(40);
  for (auto& id : ids) id = random.Below(75);
  ids[3] = 74;
  std::vector<float> out(ids.size() * cols, NAN);
  backend->EmbedRows(**matrix, ids, out.data());
  const Numbers widened = reference::Widen(table.tensor);
  for (std::size_t r = 0; r < ids.size(); ++r) {
    for (int k = 0; k < cols; ++k) {
      // One rounding.
      ASSERT_EQ(out[r * cols + k],
                static_cast<float>(widened[ids[r] * cols + k]));
    }
  }
}

TEST_P(ProductTest, PartsAndRowOrder) {
  Random random(3);
  auto backend = MakeBackend(2);
  const int cols = testing::WholeBlocks(GetParam(), 64);
  std::vector<OwnedTensor> owned;
  owned.push_back(RandomTensor(random, GetParam(), 40, cols));
  owned.push_back(RandomTensor(random, WeightType::kQ8_0, 5, cols));
  owned.push_back(RandomTensor(random, WeightType::kF32, 64, cols));
  owned[0].tensor.row_order.resize(40);
  std::iota(owned[0].tensor.row_order.rbegin(),
            owned[0].tensor.row_order.rend(), 0);
  std::vector<WeightTensor> parts;
  Numbers widened;
  for (const OwnedTensor& part : owned) {
    parts.push_back(part.tensor);
    const Numbers numbers = reference::Widen(part.tensor);
    widened.insert(widened.end(), numbers.begin(), numbers.end());
  }
  auto matrix = backend->PackMatrix(parts);
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  EXPECT_EQ((*matrix)->rows(), 109);
  EXPECT_EQ((*matrix)->cols(), cols);
  for (const int rows : {1, 5, 30}) {
    const auto x = random.Floats(rows * cols);
    std::vector<float> y(rows * 109, NAN);
    backend->MatMul(**matrix, x.data(), rows, nullptr, y.data());
    ExpectNear(y, reference::MatMul(widened, cols, FromFloats(x), {}),
               1e-6 * cols);
  }
  const std::int32_t ids[] = {0, 39, 40, 44, 45, 108};
  std::vector<float> out(6 * cols);
  backend->EmbedRows(**matrix, ids, out.data());
  for (int r = 0; r < 6; ++r) {
    EXPECT_EQ(out[r * cols + 9],
              static_cast<float>(widened[ids[r] * cols + 9]));
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, ProductTest,
                         ::testing::ValuesIn(testing::kAllWeightTypes),
                         [](const auto& info) {
                           return std::string(WeightTypeName(info.param));
                         });

// Types without blocks take any number of columns.
TEST(ProductTest, OddColumns) {
  Random random(4);
  auto backend = MakeBackend(1);
  for (const WeightType type :
       {WeightType::kF32, WeightType::kF16, WeightType::kBF16}) {
    for (const int rows : {1, 25}) {
      const OwnedTensor w = RandomTensor(random, type, 33, 197);
      auto matrix = backend->PackMatrix({&w.tensor, 1});
      ASSERT_TRUE(matrix.ok());
      const auto x = random.Floats(rows * 197);
      std::vector<float> y(rows * 33, NAN);
      backend->MatMul(**matrix, x.data(), rows, nullptr, y.data());
      ExpectNear(
          y,
          reference::MatMul(reference::Widen(w.tensor), 197, FromFloats(x), {}),
          2e-4);
    }
  }
}

TEST(RowOperationsTest, RmsNorm) {
  Random random(5);
  auto backend = MakeBackend(2);
  for (const int cols : {1, 15, 16, 64, 100, 576}) {
    const auto x = random.Floats(40 * cols, 3.0f);
    const auto weight = random.Floats(cols, 2.0f);
    std::vector<float> out(x.size(), NAN);
    backend->RmsNorm(x.data(), weight.data(), 1e-5f, 40, cols, out.data());
    ExpectNear(
        out, reference::RmsNorm(FromFloats(x), FromFloats(weight), 1e-5, cols),
        1e-5);
  }
}

TEST(RowOperationsTest, HeadNormLeavesTheRestOfARow) {
  Random random(6);
  auto backend = MakeBackend(2);
  const int dims = 48, heads = 3, stride = 200, rows = 20;
  auto x = random.Floats(rows * stride);
  const auto before = x;
  const auto weight = random.Floats(dims);
  backend->HeadNorm(x.data(), weight.data(), 1e-6f, rows, stride, heads, dims);
  for (int r = 0; r < rows; ++r) {
    const std::span<const float> row(&before[r * stride], heads * dims);
    const Numbers want =
        reference::RmsNorm(FromFloats(row), FromFloats(weight), 1e-6, dims);
    for (int i = 0; i < heads * dims; ++i) {
      ASSERT_NEAR(x[r * stride + i], want[i], 1e-5);
    }
    for (int i = heads * dims; i < stride; ++i) {
      ASSERT_EQ(x[r * stride + i], before[r * stride + i]);
    }
  }
}

TEST(RowOperationsTest, AddAndSiluMul) {
  Random random(7);
  auto backend = MakeBackend(2);
  const int rows = 33, cols = 77;
  auto x = random.Floats(rows * cols);
  const auto before = x;
  const auto y = random.Floats(rows * cols);
  backend->Add(x.data(), y.data(), rows, cols);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(x[i], before[i] + y[i]);
  }
  auto gate_up = random.Floats(rows * cols * 2, 20.0f);
  gate_up[0] = -1000.0f;  // beyond the exponential's range
  gate_up[1] = 1000.0f;
  std::vector<float> out(rows * cols, NAN);
  backend->SiluMul(gate_up.data(), rows, cols, out.data());
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < cols; ++i) {
      const float gate = gate_up[r * 2 * cols + i];
      const float up = gate_up[r * 2 * cols + cols + i];
      const double want = reference::SiluMul(gate, up);
      ASSERT_NEAR(out[r * cols + i], want, 1e-6 * std::fabs(want) + 1e-30);
    }
  }
}

TEST(RowOperationsTest, RopeRotatesHeadsAtTheirPositions) {
  Random random(8);
  auto backend = MakeBackend(2);
  for (const int rotary : {64, 24, 6}) {
    std::vector<float> frequencies;
    for (int i = 0; i < rotary / 2; ++i) {
      frequencies.push_back(
          static_cast<float>(1 / portable::Pow(10000.0, 2.0 * i / rotary)));
    }
    auto table = backend->MakeRopeTable(frequencies, 2000);
    ASSERT_TRUE(table.ok());
    const int heads = 3, dims = 64, stride = 230;
    auto x = random.Floats(60 * stride);
    const auto before = x;
    const RowSpan spans[] = {{nullptr, 0, 1900, 40}, {nullptr, 40, 7, 20}};
    backend->Rope(x.data(), stride, heads, dims, **table, spans);
    for (int r = 0; r < 60; ++r) {
      const int position = r < 40 ? 1900 + r : 7 + r - 40;
      Numbers want =
          FromFloats(std::span<const float>(&before[r * stride], stride));
      reference::Rope(want.data(), heads, dims, frequencies, position);
      for (int i = 0; i < stride; ++i) {
        ASSERT_NEAR(x[r * stride + i], want[i], 1e-6) << r << " " << i;
      }
    }
  }
}

class AttentionTest : public ::testing::TestWithParam<StateType> {};

TEST_P(AttentionTest, EqualsTwin) {
  Random random(9);
  auto backend = MakeBackend(2);
  struct Case {
    int heads, kv_heads, head_dim, tokens;
  };
  for (const Case& c :
       {Case{9, 3, 64, 300}, Case{2, 2, 16, 530}, Case{8, 1, 128, 100},
        Case{2, 1, 256, 40}, Case{20, 2, 80, 60}}) {
    const KvShape shape = {2, c.kv_heads, c.head_dim, GetParam()};
    const int kv_width = c.kv_heads * c.head_dim;
    const int width = c.heads * c.head_dim;
    const auto k = random.Floats(c.tokens * kv_width);
    const auto v = random.Floats(c.tokens * kv_width);
    const auto q = random.Floats(c.tokens * width);
    testing::TestPool pool(shape, c.tokens, testing::kQuietNan);
    const RowSpan span = {pool.blocks(), 0, 0, c.tokens};
    backend->StoreKv(shape, 1, k.data(), v.data(), kv_width, {&span, 1});
    std::vector<float> out(c.tokens * width, NAN);
    const float scale = 4.0f / std::sqrt(static_cast<float>(c.head_dim));
    backend->Attention(shape, 1, q.data(), width, c.heads, scale, {&span, 1},
                       out.data());
    Numbers rounded_k, rounded_v;
    for (const float x : k) {
      rounded_k.push_back(reference::RoundToState(x, GetParam()));
    }
    for (const float x : v) {
      rounded_v.push_back(reference::RoundToState(x, GetParam()));
    }
    const Numbers queries = FromFloats(q);
    for (int r = 0; r < c.tokens; r += r < 20 ? 1 : 13) {
      const Numbers want = reference::Attention(
          {c.heads, c.kv_heads, c.head_dim}, &queries[r * width], rounded_k,
          rounded_v, r + 1, scale);
      for (int i = 0; i < width; ++i) {
        ASSERT_NEAR(out[r * width + i], want[i], 2e-6) << r << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(States, AttentionTest,
                         ::testing::Values(StateType::kBF16, StateType::kF32),
                         [](const auto& info) {
                           return info.param == StateType::kBF16 ? "BF16"
                                                                 : "F32";
                         });

}  // namespace
}  // namespace holdfast::kernels
