// A request's wait for an engine that serves.
#ifndef HOLDFAST_GATEWAY_SERVICE_ENGINE_WAIT_H_
#define HOLDFAST_GATEWAY_SERVICE_ENGINE_WAIT_H_

#include "boost/asio/awaitable.hpp"
#include "gateway/engine/engine_link.h"
#include "gateway/http/exchange.h"
#include "gateway/openai/error.h"
#include "gateway/service/app.h"

namespace holdfast::gateway {

// The engine as it is when it serves; it and its model stay valid whatever
// becomes of the engine. 503 with Retry-After when it does not come within the
// configured time. Returns early, with an error that nobody will read, when the
// client goes.
boost::asio::awaitable<openai::ApiOr<EngineView>> WaitForEngine(
    App& app, http::Exchange& exchange);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_ENGINE_WAIT_H_
