#include "engine/metrics/stats_line.h"

#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "shared/clock/testing/fake_clock.h"

namespace holdfast::engine {
namespace {

using ::testing::HasSubstr;

TEST(StatsLineTest, EveryTenSecondsWhileSomethingHappens) {
  holdfast::testing::FakeClock clock;
  StatsLine line(clock.Now());
  EngineGauges gauges;
  gauges.free_blocks = 3;
  gauges.used_blocks = 1;
  clock.Advance(std::chrono::seconds(9));
  gauges.prefill_tokens = 500;
  EXPECT_FALSE(line.Next(gauges, clock.Now()));
  clock.Advance(std::chrono::seconds(1));
  gauges.prefill_tokens = 1000;
  gauges.generated_tokens = 20;
  gauges.recent_hit_rate = 0.5;
  gauges.evictions = 4;
  gauges.eviction_ages.seconds = 120;
  const auto text = line.Next(gauges, clock.Now());
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("prompt_tokens_per_s=100.0"));
  EXPECT_THAT(*text, HasSubstr("generated_tokens_per_s=2.0"));
  EXPECT_THAT(*text, HasSubstr("pool_usage=25.0%"));
  EXPECT_THAT(*text, HasSubstr("prefix_cache_hit_rate=50.0%"));
  EXPECT_THAT(*text, HasSubstr("evictions=4 mean_eviction_age_s=30"));
  clock.Advance(std::chrono::seconds(10));
  EXPECT_FALSE(line.Next(gauges, clock.Now()));  // nothing happened
  clock.Advance(std::chrono::seconds(10));
  gauges.running = 1;
  EXPECT_TRUE(line.Next(gauges, clock.Now()));
}

}  // namespace
}  // namespace holdfast::engine
