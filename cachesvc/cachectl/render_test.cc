#include "cachesvc/cachectl/render.h"

#include <string>

#include "cachesvc/cachectl/engine_stats.h"
#include "cachesvc/cachectl/render_disk.h"
#include "cachesvc/cachectl/text.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace holdfast::cachesvc {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::CacheStatus Sample() {
  v1::CacheStatus status;
  status.set_pid(12);
  status.set_uptime_s(3.25);
  status.set_version("1.2.3");
  status.set_attaches_total(4);
  status.set_refused_attaches_total(5);
  status.set_staging_bytes(67108864);
  status.set_staging_slots(32);
  v1::AttachedEngine* engine = status.mutable_engine();
  engine->set_pid(99);
  engine->set_epoch(0xfedc);
  engine->set_attached_s(1.5);
  engine->set_model_name("tiny");
  engine->set_fingerprint(std::string("\x00\xff", 2));
  engine->set_arena("host");
  engine->set_pool_bytes(1048576);
  v1::CacheLayout* layout = engine->mutable_layout();
  v1::View* view = layout->add_views();
  view->set_name("K");
  view->set_bytes_per_token(64);
  v1::Section* section = layout->add_sections();
  section->set_name("h_last");
  section->set_bytes(72);
  layout->set_block_tokens(256);
  layout->set_grid_tokens(1024);
  layout->set_block_bytes(16384);
  layout->set_block_count(64);
  v1::TierStatus* tier = status.add_tiers();
  tier->set_name("disk");
  tier->set_detail("not built yet");
  return status;
}

v1::EngineStatus SampleEngine() {
  v1::EngineStatus engine;
  engine.set_pid(99);
  engine.mutable_cache_service()->set_state(v1::CacheServiceLink::ATTACHED);
  engine.mutable_cache_service()->set_detail("pid 12");
  engine.mutable_cache_service()->set_attaches_total(4);
  return engine;
}

const absl::Status kAway = absl::UnavailableError("engine not reachable");

TEST(Render, TableOfAnAttachedEngine) {
  EXPECT_EQ(StatusTable(Sample(), SampleEngine()),
            "cache service   pid 12, up 3.2 s, version 1.2.3\n"
            "engine          pid 99, attached for 1.5 s, epoch "
            "000000000000fedc\n"
            "  fingerprint   00ff\n"
            "  pool          1048576 bytes, host\n"
            "  model         tiny\n"
            "  blocks        64 of 16384 bytes, 256 tokens each, grid 1024\n"
            "  layout        K 64 B/token, h_last 72 B\n"
            "engine's link   pid 99: attached, pid 12\n"
            "attaches        4, refused 5\n"
            "staging         67108864 bytes in 32 slots\n"
            "tier disk       not available: not built yet\n");
}

TEST(Render, TableWithoutEngineOrLayout) {
  v1::CacheStatus status = Sample();
  status.mutable_engine()->clear_layout();
  EXPECT_THAT(StatusTable(status, SampleEngine()),
              HasSubstr("not announced yet"));
  status.clear_engine();
  status.set_draining(true);
  EXPECT_THAT(StatusTable(status, SampleEngine()),
              HasSubstr("none is attached"));
  EXPECT_THAT(StatusTable(status, SampleEngine()), HasSubstr("stopping"));
  EXPECT_THAT(StatusTable(status, kAway), HasSubstr("engine not reachable"));
}

TEST(Render, TerminalIsSafeFromNames) {
  v1::CacheStatus status = Sample();
  status.mutable_engine()->set_model_name("a\x1b[31mb\nc");
  const std::string table = StatusTable(status, SampleEngine());
  EXPECT_THAT(table, HasSubstr("a?[31mb?c"));
  EXPECT_THAT(table, Not(HasSubstr("\x1b")));
}

TEST(Render, JsonHasEveryField) {
  const auto json = nlohmann::json::parse(StatusJson(Sample(), SampleEngine()));
  EXPECT_EQ(json["pid"], 12);
  EXPECT_EQ(json["uptime_s"], 3.25);
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_EQ(json["attaches_total"], 4);
  EXPECT_EQ(json["refused_attaches_total"], 5);
  EXPECT_EQ(json["staging_slots"], 32);
  EXPECT_EQ(json["draining"], false);
  EXPECT_EQ(json["engine"]["pid"], 99);
  EXPECT_EQ(json["engine"]["epoch"], "000000000000fedc");
  EXPECT_EQ(json["engine"]["fingerprint"], "00ff");
  EXPECT_EQ(json["engine"]["layout"]["views"][0]["name"], "K");
  EXPECT_EQ(json["engine"]["layout"]["sections"][0]["bytes"], 72);
  EXPECT_EQ(json["engine"]["layout"]["block_count"], 64);
  EXPECT_EQ(json["tiers"][0]["available"], false);
  EXPECT_EQ(json["engine_link"]["pid"], 99);
  EXPECT_EQ(json["engine_link"]["state"], "attached");
  EXPECT_EQ(json["engine_link"]["detail"], "pid 12");
  EXPECT_EQ(json["engine_link"]["attaches_total"], 4);

  v1::CacheStatus status = Sample();
  status.mutable_engine()->clear_layout();
  EXPECT_TRUE(nlohmann::json::parse(
                  StatusJson(status, SampleEngine()))["engine"]["layout"]
                  .is_null());
  status.clear_engine();
  const auto away = nlohmann::json::parse(StatusJson(status, kAway));
  EXPECT_TRUE(away["engine"].is_null());
  EXPECT_TRUE(away["engine_link"].is_null());
}

TEST(Render, StatsTellOfTheEngineOrThatItIsAway) {
  v1::CacheStats stats;
  stats.set_slots(3);
  v1::TierStats& disk = *stats.add_tiers();
  disk.set_tier(v1::TIER_DISK);
  disk.set_available(true);
  v1::TierStats& store = *stats.add_tiers();
  store.set_tier(v1::TIER_STORE);
  store.set_available(true);
  stats.set_index_bytes(5000);
  stats.set_waiting_bytes(6000);
  stats.set_disk_held_bytes(7000);
  stats.set_store_held_bytes(8000);
  EXPECT_THAT(StatsTable(stats),
              HasSubstr(fmt::format(
                  "  with      index {}, waiting files {}, deleted and still "
                  "read {}\n",
                  HumanBytes(5000), HumanBytes(6000), HumanBytes(7000))));
  EXPECT_THAT(
      StatsTable(stats),
      HasSubstr(fmt::format("  with      {} that went", HumanBytes(8000))));
  const absl::StatusOr<v1::EngineStats> away =
      absl::UnavailableError("engine not reachable at x");
  EXPECT_EQ(EngineStatsTable(away), "engine not reachable at x\n");
  auto json = nlohmann::json::parse(StatsJson(stats, away));
  EXPECT_EQ(json["slots"], 3);
  EXPECT_EQ(json["engine"]["available"], false);
  EXPECT_EQ(json["engine"]["reason"], "engine not reachable at x");

  v1::EngineStats engine;
  (*engine.mutable_prompt_tokens_by_source())["end"] = 60;
  (*engine.mutable_prompt_tokens_by_source())["computed"] = 40;
  engine.mutable_recent()->set_requests(2);
  engine.mutable_recent()->set_queried_tokens(100);
  engine.mutable_recent()->set_hit_tokens(60);
  engine.set_pool_blocks(8);
  engine.set_pool_free_blocks(6);
  const std::string table = EngineStatsTable(engine);
  EXPECT_THAT(table, HasSubstr("prompt: computed 40, end 60; generated 0\n"));
  EXPECT_THAT(table,
              HasSubstr("60.0 % of 100 prompt tokens, newest 2 requests\n"));
  EXPECT_THAT(table, HasSubstr("25.0 % of 8 blocks in use"));
  EXPECT_THAT(table, Not(HasSubstr("responses")));
  json = nlohmann::json::parse(StatsJson(stats, engine));
  EXPECT_EQ(json["engine"]["available"], true);
  EXPECT_EQ(json["engine"]["recent"]["hit_rate"], 0.6);
}

}  // namespace
}  // namespace holdfast::cachesvc
