#include "engine/resume/unclaimed_rows.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

std::vector<KeyId> Ids(int count) {
  std::vector<KeyId> ids(count);
  std::iota(ids.begin(), ids.end(), 1);
  return ids;
}

std::vector<KeyId> PartsAt(int position, int count) {
  std::vector<KeyId> ids = Ids(count);
  for (int i = position; i < count; ++i) ids[i] += 1000;
  return ids;
}

TEST(UnclaimedRowsTest, EachRowCountsOnce) {
  const PrefixKey root{1};
  UnclaimedRows rows;
  rows.Add(root, Ids(100));
  // Another session begins with 40 of them.
  EXPECT_EQ(rows.Below(root, PartsAt(40, 90), 40), 40);
  EXPECT_EQ(rows.Below(root, PartsAt(40, 90), 30), 30);
  rows.Claim(root, PartsAt(40, 90));
  EXPECT_EQ(rows.Below(root, PartsAt(40, 90), 40), 0);
  EXPECT_EQ(rows.Below(root, Ids(120), 100), 60);
  rows.Claim(root, Ids(120));
  EXPECT_TRUE(rows.empty());
  EXPECT_EQ(rows.Below(root, Ids(120), 100), 0);
}

TEST(UnclaimedRowsTest, TheRowAtTheResumePointDecides) {
  const PrefixKey root{1};
  UnclaimedRows rows;
  rows.Add(root, Ids(100));
  // Resumed deeper than they reach: somebody else's rows.
  EXPECT_EQ(rows.Below(root, Ids(200), 150), 0);
  EXPECT_EQ(rows.Below(root, PartsAt(50, 100), 60), 0);
  EXPECT_EQ(rows.Below(root, Ids(200), 0), 0);
  EXPECT_EQ(rows.Below(PrefixKey{2}, Ids(200), 100), 0);
  rows.Claim(PrefixKey{2}, Ids(200));
  EXPECT_EQ(rows.Below(root, Ids(200), 100), 100);
}

TEST(UnclaimedRowsTest, OfSeveralConversations) {
  const PrefixKey root{1};
  UnclaimedRows rows;
  rows.Add(root, Ids(100));
  rows.Add(root, PartsAt(30, 80));
  EXPECT_EQ(rows.Below(root, Ids(100), 100), 100);
  rows.Claim(root, Ids(100));
  EXPECT_EQ(rows.Below(root, PartsAt(30, 80), 80), 50);
}

}  // namespace
}  // namespace holdfast::engine
