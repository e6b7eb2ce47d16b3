// Endpoints that tell what is served and how it is.
#include <string>
#include <string_view>
#include <utility>

#include "boost/asio/awaitable.hpp"
#include "gateway/openai/error.h"
#include "gateway/service/endpoints.h"
#include "gateway/service/replies.h"

namespace holdfast::gateway {
namespace {

namespace asio = boost::asio;
using openai::Json;

constexpr char kVersion[] = HOLDFAST_VERSION;
constexpr std::string_view kModelsPath = "/v1/models/";

std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

Json ModelJson(const v1::EngineStatus& status) {
  return Json{{"id", status.model_name()},
              {"object", "model"},
              {"created", status.created_unix_s()},
              {"owned_by", "holdfast"},
              {"max_model_len", status.max_context_tokens()},
              {"meta",
               {{"n_ctx", status.max_context_tokens()},
                {"n_vocab", status.vocab_size()},
                {"architecture", status.architecture()},
                {"backend", status.backend()},
                {"exactness", status.exactness()},
                {"fingerprint", Hex(status.fingerprint())},
                {"debug", status.debug()}}}};
}

// Undoes %XX; what is no escape stays.
std::string PercentDecode(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

asio::awaitable<void> Health(Call call) {
  const EngineView& view = call.app.engine->view();
  if (view.state == EngineState::kServing) {
    http::Response response = JsonResponse(200, Json{{"status", "ok"}});
    co_await Send(call.exchange, call.record, std::move(response));
    co_return;
  }
  const char* state = EngineStateName(view.state);
  openai::ApiError error = openai::Unavailable(
      std::string("the engine is ") + state + ": " + view.detail, 1000);
  Json body = openai::ErrorJson(error);
  body["status"] = state;
  http::Response response = ErrorResponse(error);
  response.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  co_await Send(call.exchange, call.record, std::move(response));
}

asio::awaitable<void> Models(Call call) {
  const EngineView& view = call.app.engine->view();
  Json data = Json::array();
  if (view.model != nullptr) data.push_back(ModelJson(view.status));
  http::Response response =
      JsonResponse(200, Json{{"object", "list"}, {"data", std::move(data)}});
  co_await Send(call.exchange, call.record, std::move(response));
}

asio::awaitable<void> Model(Call call) {
  const EngineView& view = call.app.engine->view();
  const std::string name =
      PercentDecode(std::string_view(call.exchange.request().path)
                        .substr(kModelsPath.size()));
  if (view.model == nullptr || name != view.status.model_name()) {
    openai::ApiError error = openai::ModelNotFound(name);
    co_await SendError(call.exchange, call.record, std::move(error));
    co_return;
  }
  http::Response response = JsonResponse(200, ModelJson(view.status));
  co_await Send(call.exchange, call.record, std::move(response));
}

asio::awaitable<void> Version(Call call) {
  http::Response response = JsonResponse(200, Json{{"version", kVersion}});
  co_await Send(call.exchange, call.record, std::move(response));
}

asio::awaitable<void> Root(Call call) {
  const EngineView& view = call.app.engine->view();
  Json body{{"service", "holdfast-gateway"},
            {"version", kVersion},
            {"engine", EngineStateName(view.state)}};
  if (view.model != nullptr) body["model"] = view.status.model_name();
  http::Response response = JsonResponse(200, body);
  co_await Send(call.exchange, call.record, std::move(response));
}

// The two other daemons are asked one after the other: with both stopped a
// scrape takes two control deadlines.
asio::awaitable<void> Metrics(Call call) {
  auto engine = co_await call.app.engine->Metrics();
  auto cache = co_await call.app.cache->Metrics();
  const DaemonsUp up{.engine = engine.ok(), .cachesvc = cache.ok()};
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = call.app.metrics.Text(call.app.server->stats(), up);
  if (engine.ok()) response.body += *engine;
  if (cache.ok()) response.body += *cache;
  co_await Send(call.exchange, call.record, std::move(response));
}

}  // namespace holdfast::gateway
