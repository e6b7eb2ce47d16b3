#include "gateway/service/engine_wait.h"

#include <chrono>
#include <string>

namespace holdfast::gateway {
namespace {

constexpr std::uint32_t kRetryAfterMs = 5000;

}  // namespace

boost::asio::awaitable<openai::ApiOr<EngineView>> WaitForEngine(
    App& app, http::Exchange& exchange) {
  EngineLink& engine = *app.engine;
  const http::OnGoneScope wake(exchange, [&engine] { engine.Wake(); });
  auto view = co_await engine.WaitReady(
      std::chrono::steady_clock::now() + app.engine_wait(),
      [&exchange] { return exchange.gone(); });
  if (!view.ok()) {
    co_return openai::Unavailable(std::string(view.status().message()),
                                  kRetryAfterMs);
  }
  co_return *std::move(view);
}

}  // namespace holdfast::gateway
