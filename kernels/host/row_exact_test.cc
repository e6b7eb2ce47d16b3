// Operations on rows are equal bit for bit on every instruction set and thread
// count, alone and in batches.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/host/testing.h"
#include "kernels/portable_math.h"

namespace holdfast::kernels {
namespace {

using testing::MakeBackend;
using testing::Random;

constexpr int kRows = 70;
constexpr int kCols = 200;
constexpr int kHeadDim = 40;

struct Results {
  std::vector<float> norm, head_norm, sum, activation, rotated;
};

// Every operation over the rows in launches of `batch` rows.
Results RunAll(Backend& backend, int batch) {
  Random random(31);
  const auto x = random.Floats(kRows * kCols, 30.0f);
  const auto y = random.Floats(kRows * kCols);
  const auto weight = random.Floats(kCols);
  std::vector<float> frequencies;
  for (int i = 0; i < kHeadDim / 2; ++i) {
    frequencies.push_back(
        static_cast<float>(1 / portable::Pow(100000.0, 2.0 * i / kHeadDim)));
  }
  auto table = backend.MakeRopeTable(frequencies, 3000);
  EXPECT_TRUE(table.ok());
  Results r;
  r.norm.assign(x.size(), NAN);
  r.activation.assign(x.size() / 2, NAN);
  r.head_norm = r.sum = r.rotated = x;
  for (int row = 0; row < kRows; row += batch) {
    const int rows = std::min(batch, kRows - row);
    const int at = row * kCols;
    backend.RmsNorm(&x[at], weight.data(), 1e-6f, rows, kCols, &r.norm[at]);
    backend.HeadNorm(&r.head_norm[at], weight.data(), 1e-6f, rows, kCols, 4,
                     kHeadDim);
    backend.Add(&r.sum[at], &y[at], rows, kCols);
    backend.SiluMul(&x[at], rows, kCols / 2, &r.activation[at / 2]);
    const RowSpan span = {nullptr, 0, 2900 + row, rows};
    backend.Rope(&r.rotated[at], kCols, 4, kHeadDim, **table, {&span, 1});
  }
  return r;
}

void ExpectSame(const Results& a, const Results& b, const std::string& what) {
  const auto same = [](const std::vector<float>& p,
                       const std::vector<float>& q) {
    return std::memcmp(p.data(), q.data(), p.size() * sizeof(float)) == 0;
  };
  EXPECT_TRUE(same(a.norm, b.norm)) << what;
  EXPECT_TRUE(same(a.head_norm, b.head_norm)) << what;
  EXPECT_TRUE(same(a.sum, b.sum)) << what;
  EXPECT_TRUE(same(a.activation, b.activation)) << what;
  EXPECT_TRUE(same(a.rotated, b.rotated)) << what;
}

TEST(RowExactTest, EveryBatchTargetAndThreadCount) {
  const Results want = RunAll(*MakeBackend(1), 1);
  testing::ForEachTarget([&](const std::string& name) {
    for (int threads = 1; threads <= 3; ++threads) {
      auto backend = MakeBackend(threads);
      for (const int batch : {1, 3, 16, 17, kRows}) {
        ExpectSame(RunAll(*backend, batch), want, name);
      }
    }
  });
}

}  // namespace
}  // namespace holdfast::kernels
