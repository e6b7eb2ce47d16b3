#include "engine/retention/policy.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

using ::testing::ElementsAre;

AnchorList At(const std::vector<int>& positions) {
  AnchorList anchors;
  for (const int position : positions) {
    anchors.push_back(
        std::make_shared<const Anchor>(Anchor{.position = position}));
  }
  return anchors;
}

std::vector<int> Positions(const AnchorList& anchors) {
  std::vector<int> positions;
  for (const AnchorRef& anchor : anchors) {
    positions.push_back(anchor->position);
  }
  return positions;
}

TEST(PolicyTest, AGuestIsShortForItselfAndAgainstTheResident) {
  const RetentionBudgets budgets;
  EXPECT_TRUE(IsGuest(8192, 40000, budgets));
  EXPECT_FALSE(IsGuest(8193, 40000, budgets));
  EXPECT_TRUE(IsGuest(999, 4000, budgets));
  EXPECT_FALSE(IsGuest(1000, 4000, budgets));  // a quarter, not under it
  EXPECT_FALSE(IsGuest(1, 0, budgets));
  EXPECT_FALSE(IsGuest(1, 40000, {.guest_max_tokens = 0}));
}

TEST(PolicyTest, TheHeadIsWhatIsSharedOrKnown) {
  EXPECT_EQ(HeadRows({.shared_rows = 1000}, 0, 5000), 1024);
  EXPECT_EQ(HeadRows({.shared_rows = 1000}, 2048, 5000), 2048);
  EXPECT_EQ(HeadRows({.shared_rows = 3000}, 2048, 5000), 3072);
  EXPECT_EQ(HeadRows({.shared_rows = 0}, 0, 5000), 0);
  // A compaction; and a retry, which goes on with what was there.
  EXPECT_EQ(HeadRows({.shared_rows = 9, .same_session = true}, 512, 5000),
            4864);
  EXPECT_EQ(HeadRows({.shared_rows = 3000, .same_session = true}, 512, 5000),
            3072);
  // Rows of a session are nobody else's.
  EXPECT_EQ(HeadRows({.shared_rows = 3000}, 0, 2048), 2048);
}

TEST(PolicyTest, AnchorsOfAHeadAreSpreadAndKeepTheDeepest) {
  EXPECT_THAT(
      Positions(SpreadAnchors(At({10, 20, 30, 40, 50, 60, 70, 80}), 4, 80)),
      ElementsAre(20, 40, 60, 80));
  EXPECT_THAT(Positions(SpreadAnchors(At({10, 79, 80}), 2, 80)),
              ElementsAre(10, 80));
  EXPECT_THAT(Positions(SpreadAnchors(At({10}), 2, 80)), ElementsAre(10));
  EXPECT_TRUE(SpreadAnchors({}, 2, 80).empty());
}

TEST(PolicyTest, TheNewestOfAParkedSession) {
  EXPECT_THAT(Positions(NewestAnchors(At({1, 2, 3}), 2)), ElementsAre(2, 3));
  EXPECT_THAT(Positions(NewestAnchors(At({1}), 2)), ElementsAre(1));
}

TEST(PolicyTest, TheTurnsIsAmongThoseOfAParkedSession) {
  AnchorList anchors = At({1, 2, 3, 4});
  EXPECT_THAT(Positions(ParkedAnchors(anchors, 2)), ElementsAre(3, 4));
  EXPECT_EQ(TurnAnchor(anchors), nullptr);
  for (const std::size_t turn : {0, 1}) {
    Anchor marked = *anchors[turn];
    marked.turn = true;
    anchors[turn] = std::make_shared<Anchor>(marked);
  }
  EXPECT_EQ(TurnAnchor(anchors)->position, 2);
  EXPECT_THAT(Positions(ParkedAnchors(anchors, 2)), ElementsAre(2, 4));
  EXPECT_THAT(Positions(ParkedAnchors(anchors, 3)), ElementsAre(2, 3, 4));
  EXPECT_TRUE(ParkedAnchors(anchors, 0).empty());
}

}  // namespace
}  // namespace holdfast::engine
