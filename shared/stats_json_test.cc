#include "shared/stats_json.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

using Json = nlohmann::ordered_json;

// Every number of the message is another one; each must be in the text.
TEST(StatsJsonTest, EveryFieldOfTheEngine) {
  v1::EngineStats stats;
  (*stats.mutable_prompt_tokens_by_source())["end"] = 101;
  (*stats.mutable_prompt_tokens_by_source())["computed"] = 102;
  stats.set_generated_tokens(103);
  (*stats.mutable_requests_by_finish_reason())["stop"] = 104;
  (*stats.mutable_refused_by_reason())["queue_full"] = 105;
  (*stats.mutable_misses_by_reason())["cold"] = 106;
  (*stats.mutable_resumes_by_anchor())["line"] = 107;
  stats.mutable_recent()->set_requests(108);
  stats.mutable_recent()->set_queried_tokens(400);
  stats.mutable_recent()->set_hit_tokens(100);
  stats.set_running_requests(110);
  stats.set_waiting_requests(111);
  stats.set_pool_blocks(200);
  stats.set_pool_free_blocks(150);
  stats.set_pool_used_blocks(112);
  stats.set_pool_cached_blocks(113);
  stats.set_pool_evictions(114);
  stats.set_anchors(115);
  v1::ResponseCacheStats& responses = *stats.mutable_responses();
  responses.set_entries(116);
  responses.set_bytes(117);
  responses.set_budget_bytes(118);
  responses.set_hits(119);
  responses.set_misses(120);
  responses.set_evictions(121);
  v1::PlannerStats& planner = *stats.mutable_planner();
  planner.set_prefill_tokens_per_s(122);
  (*planner.mutable_read_bytes_per_s())["disk"] = 123;
  (*planner.mutable_chosen())["in_place"] = 124;
  (*planner.mutable_lost())["store"] = 125;
  (*planner.mutable_too_costly())["spill"] = 126;
  const Json json = StatsJson(stats);
  for (int value = 101; value <= 126; ++value) {
    if (value == 109) continue;
    EXPECT_NE(json.dump().find(std::to_string(value)), std::string::npos)
        << value;
  }
  EXPECT_EQ(json.at("prompt_tokens").dump(), R"({"computed":102,"end":101})");
  EXPECT_EQ(json.at("recent").at("hit_rate"), 0.25);
  EXPECT_EQ(json.at("pool").at("usage"), 0.25);
  EXPECT_EQ(StatsJson(v1::EngineStats()).at("recent").at("hit_rate"), 0);
}

TEST(StatsJsonTest, TiersOfTheCacheService) {
  v1::CacheStats stats;
  v1::TierStats& tier = *stats.add_tiers();
  tier.set_tier(v1::TIER_DISK);
  tier.set_available(true);
  tier.set_hits(3);
  v1::NamedCount& refused = *tier.add_refused();
  refused.set_name("budget");
  refused.set_count(2);
  stats.set_index_bytes(4);
  stats.set_waiting_bytes(5);
  stats.set_disk_held_bytes(6);
  stats.set_store_held_bytes(7);
  const Json json = StatsJson(stats);
  EXPECT_EQ(json.at("index_bytes"), 4);
  EXPECT_EQ(json.at("waiting_bytes"), 5);
  EXPECT_EQ(json.at("disk_held_bytes"), 6);
  EXPECT_EQ(json.at("store_held_bytes"), 7);
  EXPECT_EQ(json.at("tiers").at(0).at("tier"), "disk");
  EXPECT_EQ(json.at("tiers").at(0).at("hits"), 3);
  EXPECT_EQ(json.at("tiers").at(0).at("refused"), Json({{"budget", 2}}));
}

}  // namespace
}  // namespace holdfast
