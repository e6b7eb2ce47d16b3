// What the caches hold and did, and emptying them. Either of the two other
// daemons may be absent: its part of the answer says so, and the other one's
// is there all the same.
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "boost/asio/awaitable.hpp"
#include "fmt/format.h"
#include "gateway/openai/error.h"
#include "gateway/openai/json.h"
#include "gateway/service/endpoints.h"
#include "gateway/service/replies.h"
#include "shared/stats_json.h"
#include "spdlog/spdlog.h"

namespace holdfast::gateway {
namespace {

namespace asio = boost::asio;
using openai::ApiError;
using openai::ApiOr;
using openai::Json;

enum class Cleared { kResident, kStore, kResponse, kDisk, kSpill };

struct ClearedTier {
  std::string_view name;
  Cleared tier;
  bool by_default;  // nothing on the NVMe goes unless it is named
};

constexpr std::array kTiers = {
    ClearedTier{"resident", Cleared::kResident, true},
    ClearedTier{"store", Cleared::kStore, true},
    ClearedTier{"response", Cleared::kResponse, true},
    ClearedTier{"disk", Cleared::kDisk, false},
    ClearedTier{"spill", Cleared::kSpill, false},
};
constexpr std::string_view kAll = "all";
constexpr std::string_view kParameter = "tier";

Json Absent(const absl::Status& status) {
  return Json{{"available", false}, {"reason", std::string(status.message())}};
}

template <typename Part>
Json Available(const absl::StatusOr<Part>& part) {
  if (!part.ok()) return Absent(part.status());
  Json json{{"available", true}};
  json.update(StatsJson(*part));
  return json;
}

// The tier that the query names; empty: it names none. Anything else in the
// query is an error: a misspelt tier must not empty another one.
ApiOr<std::string_view> TierOf(std::string_view query) {
  if (query.empty()) return std::string_view();
  const std::size_t equals = query.find('=');
  const std::size_t more = query.find('&');
  if (query.substr(0, equals) != kParameter ||
      equals == std::string_view::npos || more != std::string_view::npos) {
    if (query.starts_with("tier=")) query.remove_prefix(more + 1);
    return openai::FieldError(
        std::string(query.substr(0, query.find_first_of("=&"))),
        "the only parameter is tier, given once");
  }
  const std::string_view value = query.substr(equals + 1);
  if (value == kAll) return value;
  for (const ClearedTier& tier : kTiers) {
    if (value == tier.name) return value;
  }
  return openai::FieldError(
      std::string(kParameter),
      fmt::format(
          "{} is none of resident, store, response, disk, spill, all",
          Json(value).dump(-1, ' ', true, Json::error_handler_t::replace)));
}

asio::awaitable<Json> ClearPool(App& app) {
  v1::ClearCacheRequest request;
  request.set_pool(true);
  const auto cleared = co_await app.engine->ClearCache(request);
  if (!cleared.ok()) co_return Absent(cleared.status());
  co_return Json{{"available", true}, {"blocks", cleared->blocks()}};
}

asio::awaitable<Json> ClearResponses(App& app) {
  v1::ClearCacheRequest request;
  request.set_responses(true);
  const auto cleared = co_await app.engine->ClearCache(request);
  if (!cleared.ok()) co_return Absent(cleared.status());
  co_return Json{{"available", true}, {"entries", cleared->responses()}};
}

asio::awaitable<Json> ClearTier(App& app, v1::Tier tier) {
  const auto cleared = co_await app.cache->Clear(tier);
  if (!cleared.ok()) co_return Absent(cleared.status());
  co_return Json{{"available", true}, {"entries", cleared->entries()}};
}

asio::awaitable<Json> Clear(App& app, Cleared tier) {
  switch (tier) {
    case Cleared::kResident:
      co_return co_await ClearPool(app);
    case Cleared::kResponse:
      co_return co_await ClearResponses(app);
    case Cleared::kStore:
      co_return co_await ClearTier(app, v1::TIER_STORE);
    case Cleared::kDisk:
      co_return co_await ClearTier(app, v1::TIER_DISK);
    case Cleared::kSpill:
      break;
  }
  co_return co_await ClearTier(app, v1::TIER_SPILL);
}

}  // namespace

asio::awaitable<void> CacheStats(Call call) {
  const auto engine = co_await call.app.engine->Stats();
  const auto cache = co_await call.app.cache->Stats();
  Json body{{"engine", Available(engine)}, {"cache_service", Available(cache)}};
  http::Response response = JsonResponse(200, body);
  co_await Send(call.exchange, call.record, std::move(response));
}

asio::awaitable<void> ClearCache(Call call) {
  const auto named = TierOf(call.exchange.request().query);
  if (!named.ok()) {
    ApiError error = named.error();
    co_await SendError(call.exchange, call.record, std::move(error));
    co_return;
  }
  const std::string wanted(*named);
  Json cleared = Json::object();
  for (const ClearedTier& tier : kTiers) {
    const bool chosen = wanted.empty() ? tier.by_default
                                       : wanted == kAll || wanted == tier.name;
    if (!chosen) continue;
    Json part = co_await Clear(call.app, tier.tier);
    cleared[std::string(tier.name)] = std::move(part);
  }
  spdlog::info("request {}: caches cleared: {}", call.record.id,
               openai::Dump(cleared));
  http::Response response =
      JsonResponse(200, Json{{"cleared", std::move(cleared)}});
  co_await Send(call.exchange, call.record, std::move(response));
}

}  // namespace holdfast::gateway
