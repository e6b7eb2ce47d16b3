#include "kernels/host/kv_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/float16.h"
#include "kernels/host/kv_layout.h"
#include "kernels/host/testing.h"

namespace holdfast::kernels {
namespace {

using testing::Random;
using testing::TestPool;

class KvRowsTest : public ::testing::TestWithParam<StateType> {
 protected:
  KvShape shape_{3, 2, 32, GetParam()};
  static constexpr int kWidth = 64;

  // Number `dim` of a row's K or V as the block holds it.
  float At(const std::byte* block, std::size_t offset, std::size_t index) {
    if (GetParam() == StateType::kF32) {
      float value;
      std::memcpy(&value, block + offset + index * 4, 4);
      return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, block + offset + index * 2, 2);
    return Bf16ToFloat(bits);
  }
  float K(const std::byte* block, int layer, int token, int head, int dim) {
    return At(block, KOffset(shape_, layer), KIndex(shape_, token, head, dim));
  }
  float V(const std::byte* block, int layer, int token, int head, int dim) {
    return At(block, VOffset(shape_, layer), VIndex(shape_, token, head, dim));
  }
  float Rounded(float value) {
    return GetParam() == StateType::kF32 ? value
                                         : Bf16ToFloat(FloatToBf16(value));
  }

  // Every row of every layer from `seed`.
  void Fill(std::byte* block, int seed) {
    Random random(seed);
    for (int layer = 0; layer < shape_.layers; ++layer) {
      for (int token = 0; token < kBlockTokens; ++token) {
        const auto k = random.Floats(kWidth), v = random.Floats(kWidth);
        WriteKvRow(shape_, layer, token, k.data(), v.data(), block);
      }
    }
  }
};

TEST_P(KvRowsTest, WritesEveryNumberOfARowAndNothingElse) {
  TestPool pool(shape_, kBlockTokens, testing::kQuietNan);
  const std::vector<std::byte> before(pool.block(0),
                                      pool.block(0) + pool.block_bytes());
  Random random(1);
  const auto k = random.Floats(kWidth), v = random.Floats(kWidth);
  WriteKvRow(shape_, 1, 37, k.data(), v.data(), pool.block(0));
  for (int head = 0; head < 2; ++head) {
    for (int dim = 0; dim < 32; ++dim) {
      EXPECT_EQ(K(pool.block(0), 1, 37, head, dim),
                Rounded(k[head * 32 + dim]));
      EXPECT_EQ(V(pool.block(0), 1, 37, head, dim),
                Rounded(v[head * 32 + dim]));
    }
  }
  std::size_t changed = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    changed += before[i] != pool.block(0)[i];
  }
  EXPECT_LE(changed, 2 * shape_.TokenBytes());
}

TEST_P(KvRowsTest, CopiesRowsBelowTheBound) {
  for (const int rows : {0, 1, 16, 37, 255, 256}) {
    TestPool from(shape_, kBlockTokens, 0), to(shape_, kBlockTokens, 0);
    Fill(from.block(0), 1);
    CopyRows(shape_, from.block(0), rows, to.block(0));
    const int copied = (rows + kGranuleTokens - 1) / kGranuleTokens * 16;
    for (int layer = 0; layer < shape_.layers; ++layer) {
      for (int token = 0; token < kBlockTokens; ++token) {
        const bool there = token < copied;
        EXPECT_EQ(K(to.block(0), layer, token, 1, 5),
                  there ? K(from.block(0), layer, token, 1, 5) : 0.0f);
        EXPECT_EQ(V(to.block(0), layer, token, 1, 5),
                  there ? V(from.block(0), layer, token, 1, 5) : 0.0f);
      }
    }
  }
}

// A block whose tail was zeroed equals one into which nothing else was ever
// written, so that a partial block's bytes depend on its rows alone.
TEST_P(KvRowsTest, ZeroedTailEqualsFreshBlock) {
  for (const int rows : {0, 1, 16, 37, 255, 256}) {
    TestPool used(shape_, kBlockTokens, testing::kInfinity);
    TestPool fresh(shape_, kBlockTokens, 0);
    Fill(used.block(0), 2);
    ZeroRows(shape_, used.block(0), rows);
    Random random(2);
    for (int layer = 0; layer < shape_.layers; ++layer) {
      for (int token = 0; token < kBlockTokens; ++token) {
        const auto k = random.Floats(kWidth), v = random.Floats(kWidth);
        if (token >= rows) continue;
        WriteKvRow(shape_, layer, token, k.data(), v.data(), fresh.block(0));
      }
    }
    EXPECT_EQ(0, std::memcmp(used.block(0), fresh.block(0), used.block_bytes()))
        << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(States, KvRowsTest,
                         ::testing::Values(StateType::kBF16, StateType::kF32),
                         [](const auto& info) {
                           return info.param == StateType::kBF16 ? "BF16"
                                                                 : "F32";
                         });

}  // namespace
}  // namespace holdfast::kernels
