// The endpoints. Each answers its exchange and fills in the record.
#ifndef HOLDFAST_GATEWAY_SERVICE_ENDPOINTS_H_
#define HOLDFAST_GATEWAY_SERVICE_ENDPOINTS_H_

#include "boost/asio/awaitable.hpp"
#include "gateway/http/exchange.h"
#include "gateway/service/app.h"
#include "gateway/service/request_record.h"

namespace holdfast::gateway {

// One call of an endpoint; all three outlive it.
struct Call {
  App& app;
  http::Exchange& exchange;
  RequestRecord& record;
};

// 200 when a request would be run now, else 503 with the engine's state.
boost::asio::awaitable<void> Health(Call call);
boost::asio::awaitable<void> Models(Call call);
// The model named behind /v1/models/.
boost::asio::awaitable<void> Model(Call call);
boost::asio::awaitable<void> Version(Call call);
boost::asio::awaitable<void> Root(Call call);
boost::asio::awaitable<void> Metrics(Call call);
// Counters of engine and cache service; either may be absent.
boost::asio::awaitable<void> CacheStats(Call call);
// ?tier=: what is emptied.
boost::asio::awaitable<void> ClearCache(Call call);
boost::asio::awaitable<void> TokenizeText(Call call);
boost::asio::awaitable<void> DetokenizeIds(Call call);
boost::asio::awaitable<void> ChatCompletions(Call call);
boost::asio::awaitable<void> Completions(Call call);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_ENDPOINTS_H_
