#include "shared/stats_json.h"

#include <cstdint>
#include <map>
#include <string>

namespace holdfast {
namespace {

using Json = nlohmann::ordered_json;

double Share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0
                    : static_cast<double>(part) / static_cast<double>(whole);
}

Json Counts(const google::protobuf::Map<std::string, std::uint64_t>& counts) {
  const std::map<std::string, std::uint64_t> sorted(counts.begin(),
                                                    counts.end());
  Json json = Json::object();
  for (const auto& [name, count] : sorted) json[name] = count;
  return json;
}

Json Counts(const google::protobuf::RepeatedPtrField<v1::NamedCount>& counts) {
  Json json = Json::object();
  for (const v1::NamedCount& count : counts) json[count.name()] = count.count();
  return json;
}

const char* TierName(v1::Tier tier) {
  switch (tier) {
    case v1::TIER_STORE:
      return "store";
    case v1::TIER_DISK:
      return "disk";
    case v1::TIER_SPILL:
      return "spill";
    default:
      return "unknown";
  }
}

Json TierJson(const v1::TierStats& tier) {
  return {{"tier", TierName(tier.tier())},
          {"available", tier.available()},
          {"not_writing", tier.not_writing()},
          {"entries", tier.entries()},
          {"chunks", tier.chunks()},
          {"bytes", tier.bytes()},
          {"budget_bytes", tier.budget_bytes()},
          {"pinned_entries", tier.pinned_entries()},
          {"foreign_entries", tier.foreign_entries()},
          {"lookups", tier.lookups()},
          {"hits", tier.hits()},
          {"hit_tokens", tier.hit_tokens()},
          {"read_bytes", tier.read_bytes()},
          {"read_ms", tier.read_ms()},
          {"stores", tier.stores()},
          {"written_bytes", tier.written_bytes()},
          {"write_ms", tier.write_ms()},
          {"refused", Counts(tier.refused())},
          {"removed", Counts(tier.removed())},
          {"corrupt_files", tier.corrupt_files()}};
}

Json Responses(const v1::ResponseCacheStats& stats) {
  return {{"entries", stats.entries()},
          {"bytes", stats.bytes()},
          {"budget_bytes", stats.budget_bytes()},
          {"hits", stats.hits()},
          {"misses", stats.misses()},
          {"evictions", stats.evictions()}};
}

Json Planner(const v1::PlannerStats& stats) {
  Json rates = Json::object();
  const std::map<std::string, double> sorted(stats.read_bytes_per_s().begin(),
                                             stats.read_bytes_per_s().end());
  for (const auto& [tier, rate] : sorted) rates[tier] = rate;
  return {{"prefill_tokens_per_s", stats.prefill_tokens_per_s()},
          {"read_bytes_per_s", rates},
          {"chosen", Counts(stats.chosen())},
          {"lost", Counts(stats.lost())},
          {"too_costly", Counts(stats.too_costly())}};
}

}  // namespace

Json StatsJson(const v1::EngineStats& stats) {
  const v1::RecentRequests& recent = stats.recent();
  Json json = {
      {"requests",
       {{"running", stats.running_requests()},
        {"waiting", stats.waiting_requests()},
        {"finished", Counts(stats.requests_by_finish_reason())},
        {"refused", Counts(stats.refused_by_reason())}}},
      {"prompt_tokens", Counts(stats.prompt_tokens_by_source())},
      {"generated_tokens", stats.generated_tokens()},
      {"misses", Counts(stats.misses_by_reason())},
      {"resumes", Counts(stats.resumes_by_anchor())},
      {"recent",
       {{"requests", recent.requests()},
        {"queried_tokens", recent.queried_tokens()},
        {"hit_tokens", recent.hit_tokens()},
        {"hit_rate", Share(recent.hit_tokens(), recent.queried_tokens())}}},
      {"pool",
       {{"blocks", stats.pool_blocks()},
        {"free_blocks", stats.pool_free_blocks()},
        {"used_blocks", stats.pool_used_blocks()},
        {"cached_blocks", stats.pool_cached_blocks()},
        {"usage", Share(stats.pool_blocks() - stats.pool_free_blocks(),
                        stats.pool_blocks())},
        {"evictions", stats.pool_evictions()},
        {"anchors", stats.anchors()}}}};
  if (stats.has_responses()) json["responses"] = Responses(stats.responses());
  if (stats.has_planner()) json["planner"] = Planner(stats.planner());
  return json;
}

Json StatsJson(const v1::CacheStats& stats) {
  Json tiers = Json::array();
  for (const v1::TierStats& tier : stats.tiers())
    tiers.push_back(TierJson(tier));
  return {{"tiers", tiers},
          {"ttl_s", stats.ttl_s()},
          {"free_floor_bytes", stats.free_floor_bytes()},
          {"free_bytes", stats.free_bytes()},
          {"service_clock_s", stats.service_clock_s()},
          {"io", stats.io()},
          {"slots", stats.slots()},
          {"slots_lent", stats.slots_lent()},
          {"stale_slots", stats.stale_slots()},
          {"index_bytes", stats.index_bytes()},
          {"waiting_bytes", stats.waiting_bytes()},
          {"disk_held_bytes", stats.disk_held_bytes()},
          {"store_held_bytes", stats.store_held_bytes()}};
}

}  // namespace holdfast
