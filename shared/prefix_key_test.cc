#include "shared/prefix_key.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "shared/cache_layout.h"

namespace holdfast {
namespace {

std::vector<KeyId> Ids(int count, KeyId first = 0) {
  std::vector<KeyId> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

TEST(Sha256Test, KnownAnswers) {
  Sha256 sha;
  EXPECT_EQ(ToHex(sha.Update("abc").Finish()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ToHex(sha.Finish()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256Test, PiecesMakeTheWhole) {
  Sha256 whole, pieces;
  whole.Update("one two");
  pieces.Update("one").Update(" two");
  EXPECT_EQ(whole.Finish(), pieces.Finish());
}

TEST(Sha256Test, MissingFileIsNamed) {
  auto digest = Sha256OfFile("no/such/file");
  ASSERT_FALSE(digest.ok());
  EXPECT_NE(std::string(digest.status().message()).find("no/such/file"),
            std::string::npos);
}

// The bytes hashed are part of file formats: these two must never change.
TEST(PrefixKeyTest, GoldenKeys) {
  Sha256Digest fingerprint{};
  for (int i = 0; i < 32; ++i) fingerprint[i] = static_cast<std::uint8_t>(i);
  const PrefixKey root = RootPrefixKey(fingerprint, "tenant");
  EXPECT_EQ(ToHex(root),
            "c5f86a25fe75ca99994f3578c1660c048b3c5307199912b2f9c2952b58dea07a");
  EXPECT_EQ(ToHex(ChainPrefixKey(root, Ids(kBlockTokens))),
            "5846a180a68cdb6ade969944c7337cf979d9f3c1df183462a959fa1f149051bf");
}

TEST(PrefixKeyTest, EveryInputMatters) {
  Sha256Digest fingerprint{}, other{};
  other[31] = 1;
  const PrefixKey root = RootPrefixKey(fingerprint, "");
  EXPECT_NE(root, RootPrefixKey(other, ""));
  EXPECT_NE(root, RootPrefixKey(fingerprint, "x"));
  const auto ids = Ids(kBlockTokens);
  auto changed = ids;
  changed.back() ^= KeyId{1} << 63;
  EXPECT_NE(ChainPrefixKey(root, ids), ChainPrefixKey(root, changed));
  EXPECT_NE(ChainPrefixKey(root, ids), ChainPrefixKey(fingerprint, ids));
}

TEST(PrefixKeyTest, ExtendingEqualsAllAtOnce) {
  const PrefixKey root = RootPrefixKey({}, "");
  const auto ids = Ids(5 * kBlockTokens + 17);
  std::vector<PrefixKey> whole, grown;
  ExtendPrefixKeys(root, ids, whole);
  ASSERT_EQ(whole.size(), 5u);
  for (std::size_t n : {100u, 256u, 300u, 900u, 1297u}) {
    ExtendPrefixKeys(root, std::span(ids).first(n), grown);
    EXPECT_EQ(grown.size(), n / kBlockTokens);
  }
  EXPECT_EQ(grown, whole);
  EXPECT_EQ(grown[2],
            ChainPrefixKey(grown[1], std::span(ids).subspan(512, 256)));
}

}  // namespace
}  // namespace holdfast
