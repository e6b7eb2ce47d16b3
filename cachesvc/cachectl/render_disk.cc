#include "cachesvc/cachectl/render_disk.h"

#include <iterator>

#include "cachesvc/cachectl/text.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "shared/stats_json.h"

namespace holdfast::cachesvc {
namespace {

using Json = nlohmann::ordered_json;
using Counts = google::protobuf::RepeatedPtrField<v1::NamedCount>;

constexpr std::size_t kShortKey = 16;

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string NonZero(const Counts& counts) {
  std::string text;
  for (const v1::NamedCount& count : counts) {
    if (count.count() == 0) continue;
    fmt::format_to(std::back_inserter(text), "{}{} {}",
                   text.empty() ? "" : ", ", Printable(count.name()),
                   count.count());
  }
  return text.empty() ? "none" : text;
}

Json ToJson(const v1::CacheEntry& entry) {
  return {{"key", Hex(entry.key())},
          {"tier", TierText(entry.tier())},
          {"fingerprint", Hex(entry.fingerprint())},
          {"first_tokens", entry.first_tokens()},
          {"end_tokens", entry.end_tokens()},
          {"file_bytes", entry.file_bytes()},
          {"chunk_bytes", entry.chunk_bytes()},
          {"chunks", entry.chunks()},
          {"states", entry.states()},
          {"hits", entry.hits()},
          {"age_s", entry.age_s()},
          {"unused_s", entry.unused_s()},
          {"pinned", entry.pinned()},
          {"foreign", entry.foreign()},
          {"session_key", entry.session_key()},
          {"provenance", entry.provenance()},
          {"anchors", entry.anchors()},
          {"sessions", entry.sessions()}};
}

std::string Rate(std::uint64_t bytes, double ms) {
  if (ms <= 0) return "";
  return fmt::format(" ({}/s)", HumanBytes(static_cast<std::uint64_t>(
                                    static_cast<double>(bytes) / ms * 1000)));
}

// What a tier pays for beside its entries.
std::string Beside(const v1::TierStats& tier, const v1::CacheStats& stats) {
  if (tier.tier() == v1::TIER_STORE && stats.store_held_bytes() > 0) {
    return fmt::format("  with      {} that went and are still read\n",
                       HumanBytes(stats.store_held_bytes()));
  }
  if (tier.tier() != v1::TIER_DISK) return "";
  return fmt::format(
      "  with      index {}, waiting files {}, deleted and still read {}\n",
      HumanBytes(stats.index_bytes()), HumanBytes(stats.waiting_bytes()),
      HumanBytes(stats.disk_held_bytes()));
}

void TierRows(const v1::TierStats& tier, const v1::CacheStats& stats,
              std::string& out) {
  auto to = std::back_inserter(out);
  fmt::format_to(to, "{:<6} {}\n", TierText(tier.tier()),
                 !tier.available() ? "not available"
                 : tier.not_writing().empty()
                     ? "available"
                     : "read only: " + Printable(tier.not_writing()));
  if (!tier.available()) return;
  fmt::format_to(
      to, "  holds     {} entries, {} of {}, {} pinned, {} foreign\n",
      tier.entries(), HumanBytes(tier.bytes()), HumanBytes(tier.budget_bytes()),
      tier.pinned_entries(), tier.foreign_entries());
  out += Beside(tier, stats);
  fmt::format_to(to, "  read      {} hits of {} lookups, {} tokens, {}{}\n",
                 tier.hits(), tier.lookups(), tier.hit_tokens(),
                 HumanBytes(tier.read_bytes()),
                 Rate(tier.read_bytes(), tier.read_ms()));
  fmt::format_to(to, "  written   {} entries, {}{}\n", tier.stores(),
                 HumanBytes(tier.written_bytes()),
                 Rate(tier.written_bytes(), tier.write_ms()));
  fmt::format_to(to, "  refused   {}\n", NonZero(tier.refused()));
  fmt::format_to(to, "  removed   {}; corrupt files {}\n",
                 NonZero(tier.removed()), tier.corrupt_files());
}

void EntryRow(const v1::CacheEntry& entry, std::string& out) {
  fmt::format_to(
      std::back_inserter(out), "{:<18}{:>9}{:>11}{:>8}{:>7}{:>11}  {}{}{}\n",
      Hex(entry.key()).substr(0, kShortKey), entry.end_tokens(),
      HumanBytes(entry.file_bytes() + entry.chunk_bytes()), entry.chunks(),
      entry.hits(), HumanSeconds(entry.unused_s()),
      entry.pinned() ? "pinned " : "", entry.foreign() ? "foreign " : "",
      Printable(entry.session_key()));
}

void ChunkRow(const v1::CacheEntry& entry, std::string& out) {
  fmt::format_to(std::back_inserter(out),
                 "{:<18}{:>9}{:>9}{:>11}{:>9}{:>10}  {}\n",
                 Hex(entry.key()).substr(0, kShortKey), entry.first_tokens(),
                 entry.end_tokens(), HumanBytes(entry.file_bytes()),
                 entry.anchors(), entry.sessions(), entry.provenance());
}

}  // namespace

std::string StatsTable(const v1::CacheStats& stats) {
  std::string out;
  for (const v1::TierStats& tier : stats.tiers()) TierRows(tier, stats, out);
  fmt::format_to(
      std::back_inserter(out),
      "slots  {} of {} in use, {} stale returns\ndisk   {} free, {} stay free, "
      "unused entries go after {}, clock {}\nio     {}\n",
      stats.slots_lent(), stats.slots(), stats.stale_slots(),
      HumanBytes(stats.free_bytes()), HumanBytes(stats.free_floor_bytes()),
      HumanSeconds(stats.ttl_s()), HumanSeconds(stats.service_clock_s()),
      Printable(stats.io()));
  return out;
}

std::string StatsJson(const v1::CacheStats& stats) {
  return Dump(holdfast::StatsJson(stats));
}

std::string StatsJson(const v1::CacheStats& stats,
                      const absl::StatusOr<v1::EngineStats>& engine) {
  Json json = holdfast::StatsJson(stats);
  Json& of_engine = json["engine"];
  of_engine["available"] = engine.ok();
  if (engine.ok()) {
    of_engine.update(holdfast::StatsJson(*engine));
  } else {
    of_engine["reason"] = std::string(engine.status().message());
  }
  return Dump(json);
}

std::string UseTable(const v1::CacheStats& stats) {
  std::string out = fmt::format("{:<8}{:>10}{:>12}{:>12}\n", "tier", "entries",
                                "bytes", "of");
  for (const v1::TierStats& tier : stats.tiers()) {
    if (!tier.available()) continue;
    fmt::format_to(std::back_inserter(out), "{:<8}{:>10}{:>12}{:>12}\n",
                   TierText(tier.tier()), tier.entries(),
                   HumanBytes(tier.bytes()), HumanBytes(tier.budget_bytes()));
  }
  return out;
}

std::string ListTable(const v1::CacheListResponse& list, bool chunks) {
  std::string out =
      chunks ? fmt::format("{:<18}{:>9}{:>9}{:>11}{:>9}{:>10}  {}\n", "key",
                           "from", "to", "bytes", "anchors", "sessions", "rows")
             : fmt::format("{:<18}{:>9}{:>11}{:>8}{:>7}{:>11}  {}\n", "key",
                           "tokens", "bytes", "chunks", "hits", "unused", "");
  for (const v1::CacheEntry& entry : list.entries()) {
    chunks ? ChunkRow(entry, out) : EntryRow(entry, out);
  }
  fmt::format_to(std::back_inserter(out), "{} of {}\n", list.entries_size(),
                 list.total());
  return out;
}

std::string ListJson(const v1::CacheListResponse& list) {
  Json entries = Json::array();
  for (const v1::CacheEntry& entry : list.entries()) {
    entries.push_back(ToJson(entry));
  }
  return Dump({{"entries", entries}, {"total", list.total()}});
}

std::string EntryText(const v1::CacheEntry& entry) {
  std::string out;
  const auto row = [&out](std::string_view name, const std::string& value) {
    fmt::format_to(std::back_inserter(out), "{:<14}{}\n", name, value);
  };
  row("key", Hex(entry.key()));
  row("tier", std::string(TierText(entry.tier())));
  row("fingerprint",
      Hex(entry.fingerprint()) + (entry.foreign() ? " (foreign)" : ""));
  row("tokens", fmt::format("{}, rows {}", entry.end_tokens(),
                            Printable(entry.provenance())));
  row("file", HumanBytes(entry.file_bytes()));
  row("chunks",
      fmt::format("{}, {}", entry.chunks(), HumanBytes(entry.chunk_bytes())));
  row("states", fmt::format("{}", entry.states()));
  row("hits", fmt::format("{}", entry.hits()));
  row("age", fmt::format("{}, unused for {}", HumanSeconds(entry.age_s()),
                         HumanSeconds(entry.unused_s())));
  row("pinned", entry.pinned() ? "yes" : "no");
  if (!entry.session_key().empty()) {
    row("session", Printable(entry.session_key()));
  }
  return out;
}

std::string EntryJson(const v1::CacheEntry& entry) {
  return Dump(ToJson(entry));
}

}  // namespace holdfast::cachesvc
