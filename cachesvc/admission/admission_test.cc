#include "cachesvc/admission/admission.h"

#include <memory>
#include <string>
#include <vector>

#include "cachesvc/index/testing/fake_index.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "shared/clock/testing/fake_clock.h"

namespace holdfast::cachesvc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kGrid = 1024;

AdmissionRequest Prompt(std::uint64_t tokens) {
  AdmissionRequest request;
  request.prompt_tokens = tokens;
  request.grid_tokens = kGrid;
  return request;
}

// Lines with these counts, each going on as earlier prompts did.
std::vector<LineState> Lines(const std::vector<std::uint64_t>& counts) {
  std::vector<LineState> lines;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    LineState line;
    line.row.count = counts[i];
    const bool goes_on = i + 1 < counts.size();
    line.next = goes_on ? 100 + i : 0;
    line.row.child = goes_on && counts[i + 1] > 0 ? 100 + i : 0;
    lines.push_back(line);
  }
  return lines;
}

TEST(PlanAnchorsTest, TheLongestLineSeenTwiceGetsOne) {
  const AdmissionRules rules;
  EXPECT_THAT(PlanAnchors(rules, Prompt(6000), Lines({0, 0, 0, 0, 0})),
              IsEmpty());
  // With this prompt, lines 1 to 3 are counted twice.
  EXPECT_THAT(PlanAnchors(rules, Prompt(6000), Lines({1, 1, 1, 0, 0})),
              ElementsAre(3 * kGrid));
  // Lines that were restored are not counted again.
  AdmissionRequest request = Prompt(6000);
  request.resume_position = 3 * kGrid;
  EXPECT_THAT(PlanAnchors(rules, request, Lines({1, 1, 1, 0, 0})), IsEmpty());
  request.resume_position = 2 * kGrid;
  EXPECT_THAT(PlanAnchors(rules, request, Lines({2, 2, 1, 1, 0})),
              ElementsAre(4 * kGrid));
  AdmissionRules three = rules;
  three.admit_after = 3;
  EXPECT_THAT(PlanAnchors(three, Prompt(6000), Lines({2, 1, 1, 0, 0})),
              ElementsAre(kGrid));
}

TEST(PlanAnchorsTest, WhatIsThereIsNotWrittenAgain) {
  auto lines = Lines({1, 1, 1, 0, 0});
  lines[2].has_anchor = true;
  EXPECT_THAT(PlanAnchors({}, Prompt(6000), lines), IsEmpty());
}

TEST(PlanAnchorsTest, ShortPromptsGuestsAndTaintedRowsAreNotAdmitted) {
  EXPECT_THAT(PlanAnchors({}, Prompt(4095), Lines({5, 5, 5})), IsEmpty());
  // Lines below the minimum of a longer prompt may be written.
  EXPECT_THAT(PlanAnchors({}, Prompt(4096), Lines({5, 0, 0, 0})),
              ElementsAre(kGrid));
  AdmissionRequest request = Prompt(6000);
  request.guest = true;
  EXPECT_THAT(PlanAnchors({}, request, Lines({5, 5, 5, 5, 5})), IsEmpty());
  request = Prompt(6000);
  request.taint = 5 * kGrid - 1;
  EXPECT_THAT(PlanAnchors({}, request, Lines({5, 5, 5, 5, 5})), IsEmpty());
  request.taint = 5 * kGrid;
  EXPECT_THAT(PlanAnchors({}, request, Lines({5, 5, 5, 5, 5})),
              ElementsAre(5 * kGrid));
}

TEST(PlanAnchorsTest, ASessionsOpeningGetsTheLinesBelowItsMessage) {
  AdmissionRequest request = Prompt(9000);
  request.opening_message = 6200;
  const auto lines = Lines({0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(PlanAnchors({}, request, lines),
              ElementsAre(3 * kGrid, 4 * kGrid, 5 * kGrid, 6 * kGrid));
  request.opening_message = 2 * kGrid;
  EXPECT_THAT(PlanAnchors({}, request, lines), ElementsAre(kGrid, 2 * kGrid));
  request.opening_message = 5;
  EXPECT_THAT(PlanAnchors({}, request, lines), IsEmpty());
  // The prefill begins in between: at a line, or behind it.
  request.opening_message = 6200;
  request.resume_position = 4 * kGrid;
  EXPECT_THAT(PlanAnchors({}, request, lines),
              ElementsAre(4 * kGrid, 5 * kGrid, 6 * kGrid));
  request.resume_position += 1;
  EXPECT_THAT(PlanAnchors({}, request, lines),
              ElementsAre(5 * kGrid, 6 * kGrid));
}

TEST(PlanAnchorsTest, ABranchGetsOne) {
  AdmissionRules rules;
  rules.admit_after = 10;
  auto lines = Lines({1, 1, 1, 0, 0});
  EXPECT_THAT(PlanAnchors(rules, Prompt(6000), lines), IsEmpty());
  // An earlier prompt went on from line 3 to another line 4.
  lines[2].row.child = 7;
  EXPECT_THAT(PlanAnchors(rules, Prompt(6000), lines), ElementsAre(3 * kGrid));
  // Where this one is resumed right there, its state is at hand; behind it, no
  // more.
  AdmissionRequest resumed = Prompt(6000);
  resumed.resume_position = 3 * kGrid;
  EXPECT_THAT(PlanAnchors(rules, resumed, lines), ElementsAre(3 * kGrid));
  resumed.resume_position += 1;
  EXPECT_THAT(PlanAnchors(rules, resumed, lines), IsEmpty());
  // The earlier one ended there, or this one does.
  lines[2].row.child = 0;
  EXPECT_THAT(PlanAnchors(rules, Prompt(6000), lines), IsEmpty());
  lines[2].row.child = 7;
  lines.resize(3);
  lines[2].next = 0;
  EXPECT_THAT(PlanAnchors(rules, Prompt(4096), lines), IsEmpty());
}

class LineCountsTest : public ::testing::Test {
 protected:
  static std::vector<PrefixKey> Keys(const std::string& names) {
    std::vector<PrefixKey> keys;
    for (const char name : names) {
      keys.push_back(Sha256().Update(std::string(1, name)).Finish());
    }
    return keys;
  }
  holdfast::testing::FaultPoint faults_;
  testing::FakeIndex index_{faults_};
  holdfast::testing::FakeClock clock_;
  ServiceClock service_{clock_, 1000};
  LineCounts counts_{index_, service_};
};

TEST_F(LineCountsTest, CountsWhatIsForwardedColdAndLearnsWhereItWent) {
  ASSERT_TRUE(counts_.Note(Keys("abc"), Prompt(4000)).ok());
  AdmissionRequest resumed = Prompt(4000);
  resumed.resume_position = kGrid;
  ASSERT_TRUE(counts_.Note(Keys("abd"), resumed).ok());
  const auto rows = counts_.Get(Keys("abcdx"));
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ((*rows)[0].count, 1u);
  EXPECT_FALSE((*rows)[0].branched);
  EXPECT_EQ((*rows)[1].count, 2u);
  EXPECT_TRUE((*rows)[1].branched);
  EXPECT_EQ((*rows)[1].child, LineChild(Keys("c")[0]));
  EXPECT_EQ((*rows)[2].count, 1u);
  EXPECT_EQ((*rows)[2].child, 0u);
  EXPECT_EQ((*rows)[4].count, 0u);
  AdmissionRequest guest = Prompt(4000);
  guest.guest = true;
  ASSERT_TRUE(counts_.Note(Keys("abc"), guest).ok());
  EXPECT_EQ(counts_.Get(Keys("a"))->front().count, 1u);
}

TEST_F(LineCountsTest, ForgetsOldLines) {
  ASSERT_TRUE(counts_.Note(Keys("ab"), Prompt(4000)).ok());
  clock_.Advance(std::chrono::seconds(100));
  ASSERT_TRUE(counts_.Note(Keys("bcd"), Prompt(4000)).ok());
  EXPECT_EQ(counts_.Prune(99, 100).value(), 1u);
  EXPECT_EQ(counts_.Get(Keys("a"))->front().count, 0u);
  EXPECT_EQ(counts_.Get(Keys("b"))->front().count, 2u);
  EXPECT_EQ(counts_.Prune(99, 2).value(), 1u);
  EXPECT_EQ(index_.Size(Table::kLines), 2u);
}

}  // namespace
}  // namespace holdfast::cachesvc
