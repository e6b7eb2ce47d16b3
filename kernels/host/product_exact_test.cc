// Products are equal bit for bit however rows are batched, whatever the thread
// count, the instruction set and the storage type.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/host/testing.h"
#include "kernels/reference/reference.h"

namespace holdfast::kernels {
namespace {

using testing::ForEachTarget;
using testing::MakeBackend;
using testing::OwnedTensor;
using testing::Random;

constexpr int kRows = 1024;
constexpr int kLeastCols = 416;  // two K blocks and a part of one
constexpr int kOutputs = 75;     // two panels and a part of one

std::unique_ptr<Matrix> Pack(Backend& backend, const WeightTensor& tensor) {
  auto matrix = backend.PackMatrix({&tensor, 1});
  EXPECT_TRUE(matrix.ok()) << matrix.status().message();
  return std::move(matrix).value();
}

std::vector<float> Multiply(Backend& backend, const Matrix& w, const float* x,
                            int rows, const float* bias) {
  std::vector<float> y(rows * w.rows(), NAN);
  backend.MatMul(w, x, rows, bias, y.data());
  return y;
}

bool SameBits(const std::vector<float>& a, const float* b) {
  return std::memcmp(a.data(), b, a.size() * sizeof(float)) == 0;
}

class ProductExactTest : public ::testing::TestWithParam<WeightType> {
 protected:
  void SetUp() override {
    Random random(11);
    cols_ = testing::WholeBlocks(GetParam(), kLeastCols);
    w_ = RandomTensor(random, GetParam(), kOutputs, cols_);
    x_ = random.Floats(kRows * cols_);
    x_[17] = -0.0f;
    x_[cols_ * 3] = 1e-41f;  // subnormal: nothing may flush it
    bias_ = random.Floats(kOutputs);
    backend_ = MakeBackend(2);
    matrix_ = Pack(*backend_, w_.tensor);
    whole_ = Multiply(*backend_, *matrix_, x_.data(), kRows, bias_.data());
  }

  // Rows [first, first + rows) computed in one launch equal the same rows of
  // the whole.
  void ExpectSame(int first, int rows) {
    const auto y =
        Multiply(*backend_, *matrix_, &x_[first * cols_], rows, bias_.data());
    ASSERT_TRUE(SameBits(y, &whole_[first * kOutputs]))
        << rows << " rows from " << first;
  }

  int cols_ = 0;
  OwnedTensor w_;
  std::vector<float> x_, bias_, whole_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Matrix> matrix_;
};

TEST_P(ProductExactTest, EveryBatchSize) {
  for (int rows = 1; rows <= 33; ++rows) {
    ExpectSame(0, rows);
    ExpectSame(kRows - rows, rows);
    ExpectSame(37 * rows % (kRows - 33), rows);
  }
  ExpectSame(300, 256);
  ExpectSame(0, kRows);
}

TEST_P(ProductExactTest, RowsAlone) {
  for (int row = 0; row < kRows; row += 31) ExpectSame(row, 1);
}

TEST_P(ProductExactTest, EveryTargetAndThreadCount) {
  ForEachTarget([&](const std::string& name) {
    for (int threads = 1; threads <= 3; ++threads) {
      auto backend = MakeBackend(threads);
      EXPECT_EQ(backend->info().target, name);
      auto matrix = Pack(*backend, w_.tensor);
      for (const int rows : {1, 2, 3, 4, 5, 7, 8, 11, 12, 29, 256, 1024}) {
        const auto y =
            Multiply(*backend, *matrix, x_.data(), rows, bias_.data());
        EXPECT_TRUE(SameBits(y, whole_.data()))
            << name << " " << threads << " threads, " << rows << " rows";
      }
    }
  });
}

// Few rows and many, by the same weights as floats.
TEST_P(ProductExactTest, EqualsTheWidenedMatrix) {
  std::vector<std::int32_t> ids(kOutputs);
  for (int n = 0; n < kOutputs; ++n) ids[n] = n;
  std::vector<float> widened(kOutputs * cols_);
  backend_->EmbedRows(*matrix_, ids, widened.data());
  const OwnedTensor f32 = testing::FloatTensor(widened, kOutputs, cols_);
  auto matrix = Pack(*backend_, f32.tensor);
  std::vector<int> batches = {100, 256};
  for (int rows = 1; rows <= 33; ++rows) batches.push_back(rows);
  for (const int rows : batches) {
    const auto y = Multiply(*backend_, *matrix, x_.data(), rows, bias_.data());
    EXPECT_TRUE(SameBits(y, whole_.data())) << rows;
  }
}

// Scales from subnormal to the largest: the plain twin's values, and the same
// sums from the widened matrix, on every target.
TEST_P(ProductExactTest, ExtremeBlocks) {
  Random random(12);
  const OwnedTensor w = ExtremeTensor(random, GetParam(), kOutputs, cols_);
  std::vector<float> want;
  for (const double value : reference::Widen(w.tensor)) {
    want.push_back(static_cast<float>(value));
  }
  const OwnedTensor f32 = testing::FloatTensor(want, kOutputs, cols_);
  std::vector<std::int32_t> ids(kOutputs);
  for (int n = 0; n < kOutputs; ++n) ids[n] = n;
  ForEachTarget([&](const std::string& name) {
    SCOPED_TRACE(name);
    auto backend = MakeBackend(2);
    auto matrix = Pack(*backend, w.tensor);
    auto plain = Pack(*backend, f32.tensor);
    std::vector<float> got(want.size(), NAN);
    backend->EmbedRows(*matrix, ids, got.data());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], want[i]) << "row " << i / cols_ << ", " << i % cols_;
    }
    for (const int rows : {1, 2, 5, 13, 40}) {
      const auto y = Multiply(*backend, *plain, x_.data(), rows, nullptr);
      EXPECT_TRUE(SameBits(
          Multiply(*backend, *matrix, x_.data(), rows, nullptr), y.data()))
          << rows << " rows";
    }
  });
}

TEST_P(ProductExactTest, EmbeddingOnEveryTarget) {
  const std::int32_t ids[] = {0, 31, 32, 63, 64, 74};
  std::vector<float> want(6 * cols_);
  backend_->EmbedRows(*matrix_, ids, want.data());
  ForEachTarget([&](const std::string& name) {
    auto backend = MakeBackend(1);
    auto matrix = Pack(*backend, w_.tensor);
    std::vector<float> got(6 * cols_, NAN);
    backend->EmbedRows(*matrix, ids, got.data());
    EXPECT_TRUE(SameBits(got, want.data())) << name;
  });
}

INSTANTIATE_TEST_SUITE_P(AllTypes, ProductExactTest,
                         ::testing::ValuesIn(testing::kAllWeightTypes),
                         [](const auto& info) {
                           return std::string(WeightTypeName(info.param));
                         });

}  // namespace
}  // namespace holdfast::kernels
