// The mode that behaves as a grid backend: single rows are computed in another
// order, reproducibly; everything else is as ever.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/host/host_backend.h"
#include "kernels/host/testing.h"

namespace holdfast::kernels {
namespace {

using testing::MakeBackend;
using testing::OwnedTensor;
using testing::Random;
using testing::TestPool;
using Floats = std::vector<float>;

std::unique_ptr<Backend> MakeGridBackend(int threads) {
  auto backend =
      *MakeHostBackend({.threads = threads, .exactness = Exactness::kGrid});
  EXPECT_TRUE(backend->Prepare(testing::TestLimits()).ok());
  return backend;
}

bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Other bits, the same numbers but for rounding.
void ExpectPerturbed(const Floats& got, const Floats& exact) {
  ASSERT_EQ(got.size(), exact.size());
  EXPECT_FALSE(SameBits(got, exact));
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], exact[i], 1e-4f) << i;
  }
}

TEST(GridModeTest, SaysSo) {
  EXPECT_EQ(MakeGridBackend(1)->info().exactness, Exactness::kGrid);
  EXPECT_EQ(MakeBackend(1)->info().exactness, Exactness::kRowInvariant);
}

Floats Multiply(Backend& backend, const WeightTensor& tensor, const Floats& x,
                int rows, const float* bias) {
  const auto matrix = std::move(backend.PackMatrix({&tensor, 1})).value();
  Floats y(rows * matrix->rows(), NAN);
  backend.MatMul(*matrix, x.data(), rows, bias, y.data());
  return y;
}

TEST(GridModeTest, ProductsOfSingleRows) {
  constexpr int kOutputs = 75;
  const auto grid = MakeGridBackend(2), other = MakeGridBackend(1);
  const auto exact = MakeBackend(2);
  for (WeightType type : {WeightType::kF32, WeightType::kQ4_1}) {
    Random random(3);
    const int cols = testing::WholeBlocks(type, 416);
    const OwnedTensor w = RandomTensor(random, type, kOutputs, cols);
    const Floats bias = random.Floats(kOutputs), x = random.Floats(40 * cols);
    for (const float* add : {static_cast<const float*>(nullptr), &bias[0]}) {
      const Floats one = Multiply(*grid, w.tensor, x, 1, add);
      ExpectPerturbed(one, Multiply(*exact, w.tensor, x, 1, add));
      EXPECT_TRUE(SameBits(one, Multiply(*other, w.tensor, x, 1, add)));
      for (int rows : {2, 7, 40}) {
        EXPECT_TRUE(SameBits(Multiply(*grid, w.tensor, x, rows, add),
                             Multiply(*exact, w.tensor, x, rows, add)))
            << rows;
      }
    }
  }
}

// The last `rows` of `tokens` rows.
Floats Attend(Backend& backend, int tokens, int rows) {
  constexpr int kHeads = 4;
  const KvShape shape = {1, 2, 32, StateType::kBF16};
  const int kv_width = shape.kv_heads * shape.head_dim;
  const int width = kHeads * shape.head_dim;
  const int stride = width + 2 * kv_width;
  Random random(5);
  const Floats qkv = random.Floats(tokens * stride, 2.0f);
  TestPool pool(shape, tokens, testing::kQuietNan);
  const RowSpan all = {pool.blocks(), 0, 0, tokens};
  backend.StoreKv(shape, 0, &qkv[width], &qkv[width + kv_width], stride,
                  {&all, 1});
  const RowSpan span = {pool.blocks(), 0, tokens - rows, rows};
  Floats out(rows * width, NAN);
  backend.Attention(shape, 0, &qkv[(tokens - rows) * stride], stride, kHeads,
                    0.125f, {&span, 1}, out.data());
  return out;
}

TEST(GridModeTest, AttentionOfSingleRows) {
  const auto grid = MakeGridBackend(2), other = MakeGridBackend(1);
  const auto exact = MakeBackend(2);
  for (int tokens : {257, 600}) {
    const Floats one = Attend(*grid, tokens, 1);
    ExpectPerturbed(one, Attend(*exact, tokens, 1));
    EXPECT_TRUE(SameBits(one, Attend(*other, tokens, 1)));
    for (int rows : {2, 20}) {
      EXPECT_TRUE(
          SameBits(Attend(*grid, tokens, rows), Attend(*exact, tokens, rows)));
    }
  }
}

}  // namespace
}  // namespace holdfast::kernels
