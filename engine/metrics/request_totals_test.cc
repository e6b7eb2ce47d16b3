#include "engine/metrics/request_totals.h"

#include "gtest/gtest.h"

namespace holdfast::engine {
namespace {

Result Ran(CacheSource source, int cached, int computed) {
  Result result;
  result.cache.source = source;
  result.cache.resumed_at = cached;
  if (cached > 0) result.cache.rows_of = {{source, cached}};
  result.cache.computed = computed;
  result.cache.miss = cached > 0 ? MissReason::kNone : MissReason::kCold;
  result.prompt_tokens = cached + computed;
  result.output_tokens = 2;
  return result;
}

TEST(RequestTotalsTest, CountsByName) {
  RequestTotals totals;
  totals.Finished(Ran(CacheSource::kNone, 0, 100));
  Result restored = Ran(CacheSource::kDisk, 60, 40);
  restored.cache.restored = 50;
  restored.cache.rows_of = {{CacheSource::kResident, 10}};
  restored.cache.anchor = AnchorKind::kLine;
  totals.Finished(restored);
  totals.Finished(Ran(CacheSource::kEnd, 90, 10));
  totals.Refused("queue_full");
  totals.Refused("queue_full");
  const RequestTotals::Values values = totals.values();
  EXPECT_EQ(
      values.prompt_tokens,
      (RequestTotals::Counts{
          {"computed", 150}, {"disk", 50}, {"end", 90}, {"resident", 10}}));
  EXPECT_EQ(values.finished, (RequestTotals::Counts{{"stop", 3}}));
  EXPECT_EQ(values.refused, (RequestTotals::Counts{{"queue_full", 2}}));
  EXPECT_EQ(values.misses, (RequestTotals::Counts{{"cold", 1}}));
  EXPECT_EQ(values.resumes, (RequestTotals::Counts{{"line", 1}, {"rows", 1}}));
  EXPECT_EQ(values.generated_tokens, 6u);
  EXPECT_EQ(values.recent.requests, 3u);
  EXPECT_EQ(values.recent.queried_tokens, 300u);
  EXPECT_EQ(values.recent.hit_tokens, 150u);
  EXPECT_EQ(values.recent.rate(), 0.5);
}

TEST(RequestTotalsTest, TheRateIsOfTheNewestRequests) {
  RequestTotals totals;
  EXPECT_EQ(totals.values().recent.rate(), 0);
  totals.Finished(Ran(CacheSource::kNone, 0, 1000000));
  for (std::size_t i = 1; i < RecentHits::kRequests; ++i)
    totals.Finished(Ran(CacheSource::kEnd, 30, 10));
  EXPECT_LT(totals.values().recent.rate(), 0.1);
  totals.Finished(Ran(CacheSource::kEnd, 30, 10));  // the first one is out
  const RecentHits recent = totals.values().recent;
  EXPECT_EQ(recent.requests, RecentHits::kRequests);
  EXPECT_EQ(recent.queried_tokens, 40 * RecentHits::kRequests);
  EXPECT_EQ(recent.rate(), 0.75);
}

TEST(RequestTotalsTest, WhatReadNoCacheIsNoMiss) {
  RequestTotals totals;
  Result bypass = Ran(CacheSource::kNone, 0, 100);
  bypass.cache.miss = MissReason::kBypass;
  totals.Finished(bypass);
  Result queued;  // cancelled before it ran
  queued.reason = FinishReason::kCancelled;
  queued.prompt_tokens = 100;
  totals.Finished(queued);
  const RequestTotals::Values values = totals.values();
  EXPECT_EQ(values.recent.requests, 0u);
  EXPECT_EQ(values.prompt_tokens.at("computed"), 100u);
  EXPECT_EQ(values.misses, (RequestTotals::Counts{{"bypass", 1}}));
}

}  // namespace
}  // namespace holdfast::engine
