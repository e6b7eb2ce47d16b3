// From a request to its endpoint: request id, route, API key, log line.
#ifndef HOLDFAST_GATEWAY_SERVICE_ROUTER_H_
#define HOLDFAST_GATEWAY_SERVICE_ROUTER_H_

#include "boost/asio/awaitable.hpp"
#include "gateway/http/exchange.h"
#include "gateway/service/app.h"

namespace holdfast::gateway {

// The handler of the HTTP server.
boost::asio::awaitable<void> Serve(App& app, http::Exchange& exchange);

// What the HTTP server refuses before there is a request: with an id and a log
// line like any other answer.
http::Response Refuse(App& app, int status, std::string_view message);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_ROUTER_H_
