// Attention, and the rows it writes, are equal bit for bit in one piece, in
// any split, on any pool, thread count and instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/host/testing.h"

namespace holdfast::kernels {
namespace {

using testing::MakeBackend;
using testing::Random;
using testing::TestPool;

struct Case {
  int heads, kv_heads, head_dim, tokens;
  StateType state;
};

class AttentionExactTest : public ::testing::TestWithParam<Case> {
 protected:
  AttentionExactTest()
      : shape_{2, GetParam().kv_heads, GetParam().head_dim, GetParam().state},
        kv_width_(shape_.kv_heads * shape_.head_dim),
        width_(GetParam().heads * shape_.head_dim),
        stride_(width_ + 2 * kv_width_) {
    Random random(21);
    // q, k and v side by side, as a joined projection leaves them.
    qkv_ = random.Floats(GetParam().tokens * stride_, 2.0f);
    // Scores far apart: weights that underflow to zero.
    for (int i = 0; i < width_; ++i) qkv_[50 * stride_ + i] *= 300.0f;
    whole_ = RunSplit(*MakeBackend(2), {GetParam().tokens}, 0);
  }

  // Forwards the tokens in launches of the given sizes, repeated.
  std::vector<float> RunSplit(Backend& backend, const std::vector<int>& sizes,
                              std::uint32_t fill) {
    TestPool pool(shape_, GetParam().tokens, fill);
    return RunOn(backend, sizes, pool);
  }

  std::vector<float> RunOn(Backend& backend, const std::vector<int>& sizes,
                           TestPool& pool) {
    std::vector<float> out(GetParam().tokens * width_, NAN);
    std::size_t next = 0;
    for (int position = 0; position < GetParam().tokens;) {
      const int rows =
          std::min(sizes[next++ % sizes.size()], GetParam().tokens - position);
      const RowSpan span = {pool.blocks(), 0, position, rows};
      const float* row = &qkv_[position * stride_];
      backend.StoreKv(shape_, 1, row + width_, row + width_ + kv_width_,
                      stride_, {&span, 1});
      backend.Attention(shape_, 1, row, stride_, GetParam().heads, 0.125f,
                        {&span, 1}, &out[position * width_]);
      position += rows;
    }
    return out;
  }

  void ExpectSame(const std::vector<float>& out, const std::string& what) {
    for (int r = 0; r < GetParam().tokens; ++r) {
      ASSERT_EQ(0, std::memcmp(&out[r * width_], &whole_[r * width_],
                               width_ * sizeof(float)))
          << what << ": row " << r;
    }
  }

  KvShape shape_;
  int kv_width_, width_, stride_;
  std::vector<float> qkv_, whole_;
};

TEST_P(AttentionExactTest, EverySplit) {
  auto backend = MakeBackend(2);
  for (const std::uint32_t fill : {testing::kQuietNan, testing::kInfinity}) {
    ExpectSame(RunSplit(*backend, {GetParam().tokens}, fill), "one piece");
    ExpectSame(RunSplit(*backend, {1}, fill), "row by row");
    ExpectSame(RunSplit(*backend, {256}, fill), "blocks");
    ExpectSame(RunSplit(*backend, {1, 2, 3, 4, 5, 6, 7, 8, 9, 33}, fill),
               "growing pieces");
  }
  Random random(5);
  for (int round = 0; round < 4; ++round) {
    std::vector<int> sizes;
    for (int i = 0; i < 40; ++i) sizes.push_back(1 + random.Below(200));
    ExpectSame(RunSplit(*backend, sizes, testing::kQuietNan), "random split");
  }
}

TEST_P(AttentionExactTest, EveryTargetAndThreadCount) {
  testing::ForEachTarget([&](const std::string& name) {
    for (int threads = 1; threads <= 3; ++threads) {
      auto backend = MakeBackend(threads);
      ExpectSame(RunSplit(*backend, {GetParam().tokens}, testing::kInfinity),
                 name + " one piece");
      ExpectSame(
          RunSplit(*backend, {180, 1, 1, 118, 1, 1, 40, 2}, testing::kQuietNan),
          name + " pieces");
    }
  });
}

// Two sequences in one launch, at different positions, against each alone.
TEST_P(AttentionExactTest, SequencesTogether) {
  auto backend = MakeBackend(2);
  const int half = GetParam().tokens / 2;
  TestPool first(shape_, GetParam().tokens, testing::kQuietNan);
  TestPool second(shape_, GetParam().tokens, testing::kInfinity);
  RunOn(*backend, {half}, first);  // all rows; the second half again below
  RowSpan start = {second.blocks(), 0, 0, 3};
  backend->StoreKv(shape_, 1, &qkv_[width_], &qkv_[width_ + kv_width_], stride_,
                   {&start, 1});
  // Rows 3.. of the second sequence, then rows half.. of the first.
  const int rows = GetParam().tokens - half;
  const int more = 20;
  std::vector<float> joined(&qkv_[3 * stride_],
                            &qkv_[3 * stride_] + more * stride_);
  joined.insert(joined.end(), &qkv_[half * stride_],
                &qkv_[half * stride_] + rows * stride_);
  const RowSpan spans[] = {{second.blocks(), 0, 3, more},
                           {first.blocks(), more, half, rows}};
  std::vector<float> out((more + rows) * width_, NAN);
  backend->StoreKv(shape_, 1, &joined[width_], &joined[width_ + kv_width_],
                   stride_, spans);
  backend->Attention(shape_, 1, joined.data(), stride_, GetParam().heads,
                     0.125f, spans, out.data());
  EXPECT_EQ(0, std::memcmp(out.data(), &whole_[3 * width_],
                           more * width_ * sizeof(float)));
  EXPECT_EQ(0, std::memcmp(&out[more * width_], &whole_[half * width_],
                           rows * width_ * sizeof(float)));
}

// A later launch does not see what an earlier conversation left in its blocks.
TEST_P(AttentionExactTest, UsedPool) {
  auto backend = MakeBackend(2);
  TestPool pool(shape_, GetParam().tokens, 0x12345678);
  RunOn(*backend, {64}, pool);
  ExpectSame(RunOn(*backend, {100, 7}, pool), "second run");
}

// An output that underflows to -0 meets weights of +0 of later keys in a large
// launch and not in a small one; either way it must come out as +0.
TEST(AttentionZeroTest, NegativeZeroBecomesPositive) {
  constexpr int kTokens = 40, kDim = 16;
  const KvShape shape = {1, 1, kDim, StateType::kBF16};
  auto backend = MakeBackend(2);
  for (const float later : {1.0f, -1.0f}) {
    std::vector<float> q(kTokens * kDim), k(kTokens * kDim), v(kTokens * kDim);
    for (int token = 0; token < kTokens; ++token) q[token * kDim] = 1.0f;
    k[0] = 80.0f;       // key 1 has a weight of e^-80 beside key 0,
    v[kDim] = -1e-30f;  // and this times it is less than any number
    for (int token = 2; token < kTokens; ++token) v[token * kDim] = later;
    const auto run = [&](int rows) {
      TestPool pool(shape, kTokens, testing::kQuietNan);
      std::vector<float> out(kTokens * kDim, NAN);
      for (int position = 0; position < kTokens; position += rows) {
        const RowSpan span = {pool.blocks(), 0, position, rows};
        const int at = position * kDim;
        backend->StoreKv(shape, 0, &k[at], &v[at], kDim, {&span, 1});
        backend->Attention(shape, 0, &q[at], kDim, 1, 1.0f, {&span, 1},
                           &out[at]);
      }
      return out;
    };
    const auto whole = run(kTokens), rows = run(1);
    EXPECT_EQ(0, std::memcmp(whole.data(), rows.data(),
                             whole.size() * sizeof(float)));
    EXPECT_EQ(whole[kDim], 0.0f);
    EXPECT_FALSE(std::signbit(whole[kDim]));
    EXPECT_FALSE(std::signbit(rows[kDim]));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionExactTest,
    ::testing::Values(Case{9, 3, 64, 600, StateType::kBF16},
                      Case{4, 2, 64, 530, StateType::kF32},
                      Case{6, 1, 128, 300, StateType::kBF16},
                      Case{2, 1, 256, 290, StateType::kBF16},
                      Case{2, 2, 256, 270, StateType::kF32},
                      Case{12, 2, 256, 270, StateType::kBF16},
                      Case{3, 3, 16, 300, StateType::kBF16},
                      Case{10, 1, 48, 280, StateType::kBF16},
                      Case{7, 1, 80, 280, StateType::kF32},
                      Case{6, 2, 80, 300, StateType::kBF16}),
    [](const auto& info) {
      const Case& c = info.param;
      return "H" + std::to_string(c.heads) + "Kv" + std::to_string(c.kv_heads) +
             "D" + std::to_string(c.head_dim) +
             (c.state == StateType::kBF16 ? "Bf16" : "F32");
    });

}  // namespace
}  // namespace holdfast::kernels
