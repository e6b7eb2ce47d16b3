#include "cachesvc/cachectl/render.h"

#include <iterator>
#include <string_view>
#include <vector>

#include "cachesvc/cachectl/text.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace holdfast::cachesvc {
namespace {

using Json = nlohmann::ordered_json;

void Row(std::string& out, std::string_view name, const std::string& value) {
  fmt::format_to(std::back_inserter(out), "{:<16}{}\n", name, value);
}

std::string Parts(const v1::CacheLayout& layout) {
  std::vector<std::string> parts;
  for (const v1::View& view : layout.views())
    parts.push_back(fmt::format("{} {} B/token", Printable(view.name()),
                                view.bytes_per_token()));
  for (const v1::Section& section : layout.sections())
    parts.push_back(
        fmt::format("{} {} B", Printable(section.name()), section.bytes()));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void EngineRows(const v1::AttachedEngine& engine, std::string& out) {
  Row(out, "engine",
      fmt::format("pid {}, attached for {:.1f} s, epoch {:016x}", engine.pid(),
                  engine.attached_s(), engine.epoch()));
  Row(out, "  fingerprint", Hex(engine.fingerprint()));
  Row(out, "  pool",
      fmt::format("{} bytes, {}", engine.pool_bytes(),
                  Printable(engine.arena())));
  if (!engine.has_layout()) {
    Row(out, "  layout", "not announced yet");
    return;
  }
  const v1::CacheLayout& layout = engine.layout();
  Row(out, "  model", Printable(engine.model_name()));
  Row(out, "  blocks",
      fmt::format("{} of {} bytes, {} tokens each, grid {}",
                  layout.block_count(), layout.block_bytes(),
                  layout.block_tokens(), layout.grid_tokens()));
  Row(out, "  layout", Parts(layout));
}

Json LayoutJson(const v1::CacheLayout& layout) {
  Json views = Json::array();
  for (const v1::View& view : layout.views())
    views.push_back(
        {{"name", view.name()}, {"bytes_per_token", view.bytes_per_token()}});
  Json sections = Json::array();
  for (const v1::Section& section : layout.sections())
    sections.push_back({{"name", section.name()}, {"bytes", section.bytes()}});
  return {{"views", views},
          {"sections", sections},
          {"block_tokens", layout.block_tokens()},
          {"grid_tokens", layout.grid_tokens()},
          {"block_bytes", layout.block_bytes()},
          {"block_count", layout.block_count()}};
}

Json EngineJson(const v1::AttachedEngine& engine) {
  return {{"pid", engine.pid()},
          {"epoch", fmt::format("{:016x}", engine.epoch())},
          {"attached_s", engine.attached_s()},
          {"model_name", engine.model_name()},
          {"fingerprint", Hex(engine.fingerprint())},
          {"layout",
           engine.has_layout() ? LayoutJson(engine.layout()) : Json(nullptr)},
          {"arena", engine.arena()},
          {"pool_bytes", engine.pool_bytes()}};
}

std::string LinkState(const v1::CacheServiceLink& link) {
  switch (link.state()) {
    case v1::CacheServiceLink::OFF:
      return "off";
    case v1::CacheServiceLink::ATTACHED:
      return "attached";
    case v1::CacheServiceLink::DETACHED:
      return "detached";
    case v1::CacheServiceLink::REFUSED:
      return "refused";
    default:
      return "unknown";
  }
}

std::string LinkText(const absl::StatusOr<v1::EngineStatus>& engine) {
  if (!engine.ok()) return Printable(std::string(engine.status().message()));
  const v1::CacheServiceLink& link = engine->cache_service();
  return fmt::format("pid {}: {}{}{}", engine->pid(), LinkState(link),
                     link.detail().empty() ? "" : ", ",
                     Printable(link.detail()));
}

Json LinkJson(const absl::StatusOr<v1::EngineStatus>& engine) {
  if (!engine.ok()) return nullptr;
  const v1::CacheServiceLink& link = engine->cache_service();
  return {{"pid", engine->pid()},
          {"state", LinkState(link)},
          {"detail", link.detail()},
          {"attaches_total", link.attaches_total()}};
}

}  // namespace

std::string StatusTable(const v1::CacheStatus& status,
                        const absl::StatusOr<v1::EngineStatus>& engine) {
  std::string out;
  Row(out, "cache service",
      fmt::format("pid {}, up {:.1f} s, version {}{}", status.pid(),
                  status.uptime_s(), Printable(status.version()),
                  status.draining() ? ", stopping" : ""));
  if (status.has_engine()) {
    EngineRows(status.engine(), out);
  } else {
    Row(out, "engine", "none is attached");
  }
  Row(out, "engine's link", LinkText(engine));
  Row(out, "attaches",
      fmt::format("{}, refused {}", status.attaches_total(),
                  status.refused_attaches_total()));
  Row(out, "staging",
      fmt::format("{} bytes in {} slots", status.staging_bytes(),
                  status.staging_slots()));
  for (const v1::TierStatus& tier : status.tiers()) {
    Row(out, fmt::format("tier {}", Printable(tier.name())),
        fmt::format("{}{}{}", tier.available() ? "available" : "not available",
                    tier.detail().empty() ? "" : ": ",
                    Printable(tier.detail())));
  }
  return out;
}

std::string StatusJson(const v1::CacheStatus& status,
                       const absl::StatusOr<v1::EngineStatus>& engine) {
  Json tiers = Json::array();
  for (const v1::TierStatus& tier : status.tiers())
    tiers.push_back({{"name", tier.name()},
                     {"available", tier.available()},
                     {"detail", tier.detail()}});
  const Json json = {
      {"pid", status.pid()},
      {"uptime_s", status.uptime_s()},
      {"version", status.version()},
      {"engine",
       status.has_engine() ? EngineJson(status.engine()) : Json(nullptr)},
      {"engine_link", LinkJson(engine)},
      {"attaches_total", status.attaches_total()},
      {"refused_attaches_total", status.refused_attaches_total()},
      {"staging_bytes", status.staging_bytes()},
      {"staging_slots", status.staging_slots()},
      {"draining", status.draining()},
      {"tiers", tiers}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace holdfast::cachesvc
