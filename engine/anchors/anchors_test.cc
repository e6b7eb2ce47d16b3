#include <cstring>
#include <vector>

#include "engine/anchors/anchor.h"
#include "engine/anchors/anchor_slots.h"
#include "engine/anchors/section_buffers.h"
#include "engine/anchors/thinning.h"
#include "engine/testing/fake_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int> Survivors(const std::vector<AnchorSpot>& spots, int capacity,
                           int end) {
  std::vector<int> positions;
  for (const AnchorSpot& spot : SurvivingSpots(spots, capacity, end)) {
    positions.push_back(spot.position);
  }
  return positions;
}

std::vector<AnchorSpot> Lines(int from, int to) {
  std::vector<AnchorSpot> spots;
  for (int i = from; i <= to; ++i) {
    spots.push_back({.position = i * 1024, .line = true});
  }
  return spots;
}

TEST(ThinningTest, WhatFitsStays) {
  EXPECT_THAT(Survivors(Lines(1, 3), 3, 3500), ElementsAre(1024, 2048, 3072));
  EXPECT_THAT(Survivors(Lines(1, 3), 0, 3500), IsEmpty());
  EXPECT_THAT(Survivors({}, 2, 10), IsEmpty());
}

TEST(ThinningTest, TheNewestFourLinesStayAndTheRestIsSpread) {
  EXPECT_THAT(Survivors(Lines(1, 16), 7, 17000),
              ElementsAre(4 * 1024, 8 * 1024, 10 * 1024, 13 * 1024, 14 * 1024,
                          15 * 1024, 16 * 1024));
}

TEST(ThinningTest, TheNewestTurnStays) {
  const std::vector<AnchorSpot> spots = {
      {.position = 10, .message = true, .turn = true},
      {.position = 400, .message = true, .turn = true},
      {.position = 410, .message = true},
      {.position = 1010, .message = true},
      {.position = 1015, .message = true},
      {.position = 1020, .prompt_end = true}};
  EXPECT_THAT(Survivors(spots, 4, 1020), ElementsAre(400, 1010, 1015, 1020));
}

TEST(ThinningTest, TheNewestTwoMessagesAndThePromptsEndStay) {
  const std::vector<AnchorSpot> spots = {
      {.position = 10, .message = true},
      {.position = 30, .message = true},
      {.position = 800},
      {.position = 1010, .message = true},
      {.position = 1015, .message = true},
      {.position = 1020, .prompt_end = true}};
  EXPECT_THAT(Survivors(spots, 5, 1020),
              ElementsAre(30, 800, 1010, 1015, 1020));
  EXPECT_THAT(Survivors(spots, 4, 1020), ElementsAre(800, 1010, 1015, 1020));
  EXPECT_THAT(Survivors(spots, 3, 1020), ElementsAre(1010, 1015, 1020));
}

TEST(ThinningTest, WhenEvenThoseDoNotFitTheOldestGo) {
  EXPECT_THAT(Survivors(Lines(1, 9), 2, 10000),
              ElementsAre(8 * 1024, 9 * 1024));
}

TEST(ThinningTest, ASpotMayBeSeveralThings) {
  std::vector<AnchorSpot> spots = Lines(1, 6);
  spots[0].message = true;
  EXPECT_THAT(Survivors(spots, 5, 7000),
              ElementsAre(1024, 3 * 1024, 4 * 1024, 5 * 1024, 6 * 1024));
}

TEST(ThinningTest, TheSmallestGapGoesFirst) {
  const std::vector<int> spots = {100, 150, 500, 900, 950};
  std::vector<bool> kept(5);
  EXPECT_EQ(SpotToDrop(spots, kept, 2000), 0);  // 0 to 150
  kept[0] = true;
  EXPECT_EQ(SpotToDrop(spots, kept, 2000), 1);  // 100 to 500
  EXPECT_EQ(SpotToDrop(spots, kept, 955), 4);   // 900 to the end
}

TEST(AnchorSlotsTest, TheBudgetSaysHowMany) {
  constexpr std::uint64_t kDefault = std::uint64_t{5} << 29;
  // The 27B configuration, bf16 states.
  EXPECT_EQ(AnchorSlotsFor(kDefault, 150994944 + 2949120 + 20480), 17);
  EXPECT_EQ(AnchorSlotsFor(1000, 500), 2);
  EXPECT_EQ(AnchorSlotsFor(kDefault, 64), kMaxAnchorSlots);
  EXPECT_EQ(AnchorSlotsFor(kDefault, 0), 0);
  EXPECT_THAT(DescribeAnchors(17, 1 << 20, true), HasSubstr("17.0 MiB"));
}

TEST(AnchorSlotsTest, AnAnchorIsACopyAndGivesItsSlotBack) {
  testing::FakeBackend backend;
  SectionBuffers buffers(backend, 128);
  AnchorSlots slots(&buffers, 2);
  std::vector<std::byte> sections(128, std::byte{7});
  AnchorRef first =
      slots.Take(10, AnchorKind::kLine, Provenance::kGrid, sections.data());
  ASSERT_NE(first, nullptr);
  sections.assign(128, std::byte{8});
  EXPECT_EQ(first->sections[127], std::byte{7});
  const AnchorRef second =
      slots.Take(20, AnchorKind::kMessage, Provenance::kGrid, sections.data());
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(slots.full());
  EXPECT_EQ(
      slots.Take(30, AnchorKind::kLine, Provenance::kGrid, sections.data()),
      nullptr);
  first.reset();
  EXPECT_EQ(slots.live(), 1);
  first = slots.Take(30, AnchorKind::kLine, Provenance::kGrid, sections.data());
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->sections[0], std::byte{8});
  EXPECT_EQ(slots.taken(AnchorKind::kLine), 2u);
  EXPECT_EQ(slots.taken(AnchorKind::kMessage), 1u);
}

TEST(SectionBuffersTest, WhatIsGivenBackIsUsedAgain) {
  testing::FakeBackend backend;
  SectionBuffers buffers(backend, 128);
  SectionBuffers::Buffer first = buffers.Take();
  std::byte* const memory = first.get();
  first.reset();
  first = buffers.Take();
  EXPECT_EQ(first.get(), memory);
  EXPECT_NE(buffers.Take().get(), memory);
  // Reserved memory is there, and counts what was taken before.
  ASSERT_TRUE(buffers.Reserve(3).ok());
  const auto second = buffers.Take(), third = buffers.Take();
  std::byte* const spare = second.get();
  EXPECT_NE(spare, third.get());
  ASSERT_TRUE(buffers.Reserve(3).ok());
  EXPECT_NE(buffers.Take().get(), spare);
}

TEST(AnchorListTest, IsSearchedByPosition) {
  testing::FakeBackend backend;
  SectionBuffers buffers(backend, 64);
  AnchorSlots slots(&buffers, 4);
  const std::vector<std::byte> sections(64);
  const auto take = [&](int position) {
    return slots.Take(position, AnchorKind::kLine, Provenance::kGrid,
                      sections.data());
  };
  AnchorList anchors;
  EXPECT_EQ(DeepestAnchor(anchors, 100), nullptr);
  for (int position : {20, 10, 30}) InsertAnchor(anchors, take(position));
  EXPECT_EQ(DeepestAnchor(anchors, 9), nullptr);
  EXPECT_EQ(DeepestAnchor(anchors, 10)->position, 10);
  EXPECT_EQ(DeepestAnchor(anchors, 29)->position, 20);
  EXPECT_EQ(DeepestAnchor(anchors, 1000)->position, 30);
  const AnchorList rest = AnchorsWithout(anchors, {anchors[1]});
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[1], anchors[2]);
}

TEST(AnchorListTest, TheSpareAnchorWithTheSmallestGapGoes) {
  testing::FakeBackend backend;
  SectionBuffers buffers(backend, 64);
  AnchorSlots slots(&buffers, 16);
  const std::vector<std::byte> sections(64);
  AnchorList anchors;
  for (int i = 1; i <= 6; ++i) {
    anchors.push_back(slots.Take(1024 * i, AnchorKind::kLine, Provenance::kGrid,
                                 sections.data()));
  }
  anchors.insert(
      anchors.begin() + 1,
      slots.Take(1100, AnchorKind::kEnd, Provenance::kGrid, sections.data()));
  AnchorRef held = anchors[1];  // another conversation's, too
  const auto positions = [&anchors] {
    std::vector<int> positions;
    for (const AnchorRef& anchor : anchors) {
      positions.push_back(anchor->position);
    }
    return positions;
  };
  EXPECT_TRUE(DropSpareAnchor(anchors, 1024, 6200));
  EXPECT_THAT(positions(), ElementsAre(1100, 2048, 3072, 4096, 5120, 6144));
  held.reset();
  EXPECT_TRUE(DropSpareAnchor(anchors, 1024, 6200));
  EXPECT_TRUE(DropSpareAnchor(anchors, 1024, 6200));
  EXPECT_THAT(positions(), ElementsAre(3072, 4096, 5120, 6144));
  EXPECT_FALSE(DropSpareAnchor(anchors, 1024, 6200));
}

TEST(AnchorSlotsTest, OtherClassesDoNotTakeTheResidentsSlots) {
  testing::FakeBackend backend;
  SectionBuffers buffers(backend, 64);
  AnchorSlots slots(&buffers, 1);
  const std::vector<std::byte> sections(64);
  const auto take = [&](RetentionClass c) {
    return slots.Take(10, AnchorKind::kLine, Provenance::kGrid, sections.data(),
                      c);
  };
  const AnchorRef guest = take(RetentionClass::kGuest);
  EXPECT_FALSE(slots.full());
  AnchorRef resident = take(RetentionClass::kResident);
  EXPECT_EQ(take(RetentionClass::kResident), nullptr);
  slots.Charge(resident, RetentionClass::kParked);
  EXPECT_FALSE(slots.full());
  EXPECT_EQ(slots.live(RetentionClass::kParked), 1);
  EXPECT_EQ(slots.live(), 2);
  resident.reset();
  EXPECT_EQ(slots.live(RetentionClass::kParked), 0);
}

}  // namespace
}  // namespace holdfast::engine
