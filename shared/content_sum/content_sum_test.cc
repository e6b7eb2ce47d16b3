#include "shared/content_sum/content_sum.h"

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

std::vector<std::byte> Counting(std::size_t bytes) {
  std::vector<std::byte> result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    result[i] = static_cast<std::byte>(i * 7 + 3);
  }
  return result;
}

// Golden vectors: these numbers name files, so they never change. They were
// computed by a separate program from the formula in the header.
TEST(ContentSumTest, GoldenVectors) {
  struct Case {
    std::size_t bytes;
    ContentSum sum;
  };
  const Case cases[] = {
      {0, {0x0000000000000000, 0x0000000000000000}},
      {1, {0x910a2dec89025cc2, 0xe50939261e6e5786}},
      {7, {0xc561f213a0e72ffa, 0x17d0d0e6a15dd3e2}},
      {8, {0x20373e884d14773d, 0xf29e534b1ea779d4}},
      {9, {0x15437091a7cb427d, 0x94d09ea69a8c4049}},
      {64, {0xed0d8a5df684b06e, 0xf7ae24ea0bbffe0f}},
      {1000, {0xb09a7d56c1b49c41, 0x7894d38d9ee0dd24}},
      {4096, {0x4e996759677fce68, 0xac08209efdce4a41}},
  };
  for (const Case& c : cases) {
    const ContentSum sum = ContentSumOf(Counting(c.bytes));
    EXPECT_EQ(sum.a, c.sum.a) << c.bytes << " bytes";
    EXPECT_EQ(sum.b, c.sum.b) << c.bytes << " bytes";
  }
}

TEST(ContentSumTest, PiecesJoin) {
  const auto bytes = Counting(1003);
  ContentSummer summer;
  summer.Update(std::span(bytes).subspan(0, 256));
  summer.Update(std::span(bytes).subspan(256, 512));
  summer.Update(std::span(bytes).subspan(768));
  EXPECT_EQ(summer.Finish(), ContentSumOf(bytes));
}

TEST(ContentSumTest, SeesFlipsSwapsAndLength) {
  auto bytes = Counting(64);
  const ContentSum sum = ContentSumOf(bytes);
  bytes[17] ^= std::byte{1};
  EXPECT_NE(ContentSumOf(bytes).a, sum.a);
  EXPECT_NE(ContentSumOf(bytes).b, sum.b);
  bytes[17] ^= std::byte{1};
  for (int i = 0; i < 8; ++i) std::swap(bytes[i], bytes[8 + i]);
  EXPECT_NE(ContentSumOf(bytes).a, sum.a);
  EXPECT_NE(ContentSumOf(bytes).b, sum.b);
  const std::vector<std::byte> seven(7), eight(8);
  EXPECT_NE(ContentSumOf(seven).a, ContentSumOf(eight).a);
}

TEST(ContentSumTest, EachViewOverAllBlocks) {
  CacheLayout layout;
  layout.views = {{"K", 8, 1}, {"V", 24, 1}};
  const auto bytes = Counting(2 * layout.BlockBytes());
  const std::byte* blocks[] = {bytes.data(),
                               bytes.data() + layout.BlockBytes()};
  const auto sums = ViewSums(layout, blocks);
  ASSERT_EQ(sums.size(), 2u);
  ContentSummer k, v;
  for (const std::byte* block : blocks) {
    k.Update({block, 8 * kBlockTokens});
    v.Update({block + 8 * kBlockTokens, 24 * kBlockTokens});
  }
  EXPECT_EQ(sums[0], k.Finish());
  EXPECT_EQ(sums[1], v.Finish());
}

}  // namespace
}  // namespace holdfast
