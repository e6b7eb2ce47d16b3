#include "gateway/service/router.h"

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "fmt/format.h"
#include "gateway/openai/error.h"
#include "gateway/service/endpoints.h"
#include "gateway/service/local_request.h"
#include "gateway/service/replies.h"
#include "spdlog/spdlog.h"

namespace holdfast::gateway {
namespace {

namespace asio = boost::asio;

enum class Access { kOpen, kKey, kAdmin };

struct Route {
  std::string_view method;
  std::string_view path;  // ends in '/': everything below it, but not itself
  Access access;
  asio::awaitable<void> (*handler)(Call);
};

constexpr std::array kRoutes = {
    Route{"GET", "/health", Access::kOpen, Health},
    Route{"GET", "/v1/health", Access::kOpen, Health},
    Route{"GET", "/v1/models", Access::kOpen, Models},
    Route{"GET", "/v1/models/", Access::kOpen, Model},
    Route{"GET", "/version", Access::kOpen, Version},
    Route{"GET", "/metrics", Access::kKey, Metrics},
    Route{"POST", "/v1/chat/completions", Access::kKey, ChatCompletions},
    Route{"POST", "/v1/completions", Access::kKey, Completions},
    Route{"POST", "/tokenize", Access::kKey, TokenizeText},
    Route{"POST", "/detokenize", Access::kKey, DetokenizeIds},
    Route{"GET", "/v1/cache/stats", Access::kAdmin, CacheStats},
    Route{"POST", "/v1/cache/clear", Access::kAdmin, ClearCache},
};
constexpr Route kRoot = {"GET", "/", Access::kOpen, Root};
constexpr std::size_t kMaxRequestId = 128;
constexpr std::size_t kMaxLogError = 400;

const Route* Find(std::string_view path) {
  if (path == kRoot.path) return &kRoot;
  for (const Route& route : kRoutes) {
    const bool below = route.path.back() == '/' &&
                       path.starts_with(route.path) &&
                       path.size() > route.path.size();
    if (path == route.path || below) return &route;
  }
  return nullptr;
}

// The client's id where it is fit for a header and a log line, else a new one.
std::string RequestId(const http::Request& request, App& app) {
  const auto given = request.Find("x-request-id");
  if (given.has_value() && !given->empty() && given->size() <= kMaxRequestId &&
      std::all_of(given->begin(), given->end(),
                  [](char c) { return c > ' ' && c < '\x7f'; })) {
    return std::string(*given);
  }
  return fmt::format("req-{:016x}{:016x}", app.random(), app.random());
}

// Pages that a browser loads from this machine may call us; pages from
// elsewhere only with an API key, or any web page could use the model.
std::string_view AllowedOrigin(const http::Request& request,
                               const ApiKeys& keys) {
  const auto origin = request.Find("origin");
  if (!origin.has_value()) return {};
  return !keys.open() || IsLocalOrigin(*origin) ? *origin : std::string_view();
}

// Adds CORS headers to whatever the endpoint answers.
class WithCors final : public http::Exchange {
 public:
  WithCors(http::Exchange& inner, std::string_view origin)
      : inner_(inner), origin_(origin) {}
  http::Request& request() override { return inner_.request(); }
  bool gone() const override { return inner_.gone(); }
  void OnGone(std::function<void()> callback) override {
    inner_.OnGone(std::move(callback));
  }
  asio::awaitable<absl::Status> Reply(http::Response response) override {
    Add(response);
    return inner_.Reply(std::move(response));
  }
  asio::awaitable<absl::Status> BeginStream(http::Response head) override {
    Add(head);
    return inner_.BeginStream(std::move(head));
  }
  asio::awaitable<absl::Status> Write(std::string_view piece) override {
    return inner_.Write(piece);
  }
  asio::awaitable<absl::Status> EndStream() override {
    return inner_.EndStream();
  }
  int status() const override { return inner_.status(); }

 private:
  void Add(http::Response& response) const {
    if (origin_.empty()) return;
    response.headers.push_back({"access-control-allow-origin", origin_});
    response.headers.push_back({"vary", "origin"});
  }

  http::Exchange& inner_;
  const std::string origin_;
};

http::Response Preflight() {
  http::Response response;
  response.status = 204;
  response.content_type.clear();
  response.headers = {
      {"allow", "GET, HEAD, POST, OPTIONS"},
      {"access-control-allow-methods", "GET, HEAD, POST, OPTIONS"},
      {"access-control-allow-headers",
       "authorization, content-type, x-api-key, x-request-id, x-session-id"},
      {"access-control-max-age", "600"}};
  return response;
}

std::optional<openai::ApiError> Refusal(const App& app, const Route& route,
                                        const http::Request& request) {
  switch (route.access) {
    case Access::kOpen:
      return std::nullopt;
    case Access::kKey:
      if (app.keys.open() || app.keys.Allows(request)) return std::nullopt;
      return openai::Unauthorized();
    case Access::kAdmin:
      break;
  }
  if (IsFromThisMachine(request) || app.admin_tokens.Allows(request))
    return std::nullopt;
  return openai::Forbidden(
      fmt::format("{} is for this machine itself and for holders of an admin "
                  "token (--admin-token), sent as \"Authorization: Bearer\"",
                  route.path));
}

asio::awaitable<void> Dispatch(Call call) {
  const http::Request& request = call.exchange.request();
  const Route* route = Find(request.path);
  if (route != nullptr) call.record.route = std::string(route->path);
  if (request.method == "OPTIONS") {
    http::Response response = Preflight();
    co_await Send(call.exchange, call.record, std::move(response));
    co_return;
  }
  if (route == nullptr) {
    openai::ApiError error = openai::PathNotFound(request.path);
    co_await SendError(call.exchange, call.record, std::move(error));
    co_return;
  }
  const bool head = request.method == "HEAD" && route->method == "GET";
  if (request.method != route->method && !head) {
    openai::ApiError error =
        openai::MethodNotAllowed(request.method, request.path);
    http::Response response = ErrorResponse(error);
    response.headers.push_back(
        {"allow", fmt::format("{}, OPTIONS", route->method)});
    call.record.error = error.message;
    co_await Send(call.exchange, call.record, std::move(response));
    co_return;
  }
  if (auto refused = Refusal(call.app, *route, request)) {
    openai::ApiError error = *std::move(refused);
    co_await SendError(call.exchange, call.record, std::move(error));
    co_return;
  }
  co_await route->handler(call);
}

// Error texts may quote the client: they must not break the line.
std::string ForLog(std::string text) {
  if (text.size() > kMaxLogError) {
    text.resize(kMaxLogError);
    text += "...";
  }
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  }
  return text;
}

void Log(const RequestRecord& record) {
  // Probes ask all the time; that an engine is away is logged where it is seen.
  const bool quiet = record.route.ends_with("/health") ||
                     (!record.generation && record.status < 400);
  std::string line =
      fmt::format("request {} {} status={} ms={:.1f}", record.id, record.route,
                  record.status, record.ElapsedMs());
  if (record.generation) {
    line +=
        fmt::format(" stream={} prompt={} cached={} source={} out={}",
                    record.stream, record.prompt_tokens, record.cached_tokens,
                    record.cache_source.empty() ? "-" : record.cache_source,
                    record.output_tokens);
    if (record.first_token_ms.has_value())
      line += fmt::format(" ttft_ms={:.1f}", *record.first_token_ms);
  }
  if (record.client_gone) line += " client_gone";
  if (!record.error.empty()) line += " error=" + ForLog(record.error);
  spdlog::log(quiet ? spdlog::level::debug : spdlog::level::info, "{}", line);
}

}  // namespace

asio::awaitable<void> Serve(App& app, http::Exchange& exchange) {
  RequestRecord record;
  record.id = RequestId(exchange.request(), app);
  WithCors with_cors(exchange, AllowedOrigin(exchange.request(), app.keys));
  std::string failure;
  try {
    co_await Dispatch(Call{app, with_cors, record});
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (!failure.empty()) {
    // A bug of ours or no memory. Once a stream has begun it can only be cut.
    spdlog::error("request {} {}: unexpected exception: {}", record.id,
                  record.route, failure);
    if (exchange.status() == 0) {
      openai::ApiError error = openai::InternalError("internal error");
      co_await SendError(with_cors, record, std::move(error));
    }
    record.error = failure;
  }
  if (record.status == 0) record.status = exchange.status();
  Log(record);
  app.metrics.Finished(record);
}

}  // namespace holdfast::gateway
