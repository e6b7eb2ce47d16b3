#include "shared/clock/clock.h"

#include <chrono>

#include "gtest/gtest.h"
#include "shared/clock/testing/fake_clock.h"

namespace holdfast {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

TEST(ServiceClockTest, SumsUptimeOverRuns) {
  testing::FakeClock clock;
  ServiceClock first(clock, 0);
  EXPECT_EQ(first.Seconds(), 0u);
  clock.Advance(seconds(90));
  EXPECT_EQ(first.Seconds(), 90u);
  // The machine is off for a year.
  clock.Advance(hours(24 * 365));
  const ServiceClock second(clock, 90);
  EXPECT_EQ(second.Seconds(), 90u);
  clock.Advance(seconds(5));
  EXPECT_EQ(second.Seconds(), 95u);
}

TEST(FakeClockTest, ASleepMovesIt) {
  testing::FakeClock clock;
  const auto start = clock.Now();
  clock.SleepUntil(start + seconds(3));
  EXPECT_EQ(clock.Now() - start, seconds(3));
  clock.SleepUntil(start);
  EXPECT_EQ(clock.Now() - start, seconds(3));
}

TEST(SteadyClockTest, DoesNotGoBack) {
  const auto first = SteadyClock().Now();
  SteadyClock().SleepUntil(first);
  EXPECT_GE(SteadyClock().Now(), first);
}

}  // namespace
}  // namespace holdfast
