#include "engine/scheduler/step_size.h"

#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

TEST(StepSizeTest, FollowsTheRate) {
  StepSize step(1024, 4096, StepSize::Steps::kTimed);
  EXPECT_EQ(step.Next(0, 4000), StepSize::kFirstRows);
  step.Measured(64, 0.064);  // 1000 rows a second
  EXPECT_EQ(step.Next(0, 4000), 240);
  for (int i = 0; i < 20; ++i) step.Measured(64, 0.64);  // ten times slower
  EXPECT_EQ(step.Next(0, 4000), 16);
  for (int i = 0; i < 40; ++i) step.Measured(64, 0.0001);
  EXPECT_EQ(step.Next(0, 4000), 1024);  // what a Forward takes
}

TEST(StepSizeTest, AStepCanBeToldToBeShorter) {
  StepSize step(1024, 4096, StepSize::Steps::kTimed);
  step.Measured(64, 0.064);  // 1000 rows a second
  EXPECT_EQ(step.Next(0, 4000, {.rows = 4096, .seconds = 0.1}), 96);
  EXPECT_EQ(step.Next(0, 4000, {.rows = 128, .seconds = 9}), 128);
  StepSize chunks(1024, 1024, StepSize::Steps::kChunks);
  EXPECT_EQ(chunks.Next(0, 4000, {.rows = 128, .seconds = 0.1}), 1024);
}

TEST(StepSizeTest, NeverLessThanSixteenNorAcrossALine) {
  StepSize step(512, 1024, StepSize::Steps::kTimed);
  step.Measured(16, 100);
  EXPECT_EQ(step.Next(0, 4000), 16);
  EXPECT_EQ(step.Next(1020, 4000), 4);
  EXPECT_EQ(step.Next(1024, 4000), 16);
  EXPECT_EQ(step.Next(5, 3), 3);
}

TEST(StepSizeTest, OnAGridBackendAStepEndsAtALineOrAtTheEnd) {
  StepSize step(1024, 1024, StepSize::Steps::kChunks);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(step.Next(0, 4000), 1024);
    EXPECT_EQ(step.Next(1024, 1000), 1000);
    EXPECT_EQ(step.Next(1030, 4000), 1018);
    EXPECT_EQ(step.Next(1030, 5), 5);
    step.Measured(64, 100);  // says nothing here
  }
}

TEST(StepSizeTest, ShortStepsTeachNothing) {
  StepSize step(512, 1024, StepSize::Steps::kTimed);
  step.Measured(1, 10);
  step.Measured(16, 0);
  EXPECT_EQ(step.Next(0, 4000), StepSize::kFirstRows);
}

}  // namespace
}  // namespace holdfast::engine
