#include "gateway/service/router.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "boost/asio/ip/address.hpp"
#include "boost/asio/post.hpp"
#include "fmt/format.h"
#include "gateway/openai/error.h"
#include "gateway/service/endpoints.h"
#include "gateway/service/local_request.h"
#include "gateway/service/replies.h"
#include "gateway/tokenizer/utf8.h"
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
constexpr std::size_t kLargeBody = 4u << 20;

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

std::string NewRequestId(App& app) {
  return fmt::format("req-{:016x}{:016x}", app.random(), app.random());
}

// The client's id where it is fit for a header and a log line, else a new one.
std::string RequestId(const http::Request& request, App& app) {
  const auto given = request.Find("x-request-id");
  if (given.has_value() && !given->empty() && given->size() <= kMaxRequestId &&
      std::all_of(given->begin(), given->end(),
                  [](char c) { return c > ' ' && c < '\x7f'; })) {
    return std::string(*given);
  }
  return NewRequestId(app);
}

// Pages that a browser loads from this machine may call us; pages from
// elsewhere only with an API key, or any web page could use the model
// (RefuseForeignPage).
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

constexpr std::string_view kUsualHeaders =
    "authorization, content-type, x-api-key, x-request-id, x-session-id";
constexpr std::size_t kMaxAskedHeaders = 1024;

// Clients send headers of their own (x-stainless-*, say), which change nothing
// here: what a page asks for it may send. Header names and commas only.
std::string AllowedHeaders(const http::Request& request) {
  const auto asked = request.Find("access-control-request-headers");
  const auto fit = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '-' || c == '_' || c == ',' ||
           c == ' ';
  };
  if (!asked.has_value() || asked->empty() ||
      asked->size() > kMaxAskedHeaders ||
      !std::all_of(asked->begin(), asked->end(), fit)) {
    return std::string(kUsualHeaders);
  }
  return std::string(*asked);
}

http::Response Preflight(const http::Request& request) {
  http::Response response;
  response.status = 204;
  response.content_type.clear();
  response.headers = {
      {"allow", "GET, HEAD, POST, OPTIONS"},
      {"access-control-allow-methods", "GET, HEAD, POST, OPTIONS"},
      {"access-control-allow-headers", AllowedHeaders(request)},
      {"access-control-max-age", "600"}};
  return response;
}

bool ListensOnLoopback(const GatewayConfig& config) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(config.host, error);
  return !error && address.is_loopback();
}

// Without keys a browser on this machine, or on its network, would let any page
// that it shows use the model: it sends the page's request, and only keeps the
// answer from the page. It names the page's site as the origin, or, where that
// site's name has been made to point here, as the host.
std::optional<openai::ApiError> RefuseForeignPage(
    const App& app, const http::Request& request) {
  const auto origin = request.Find("origin");
  if (origin.has_value() && !IsLocalOrigin(*origin)) {
    return openai::ForeignPage(fmt::format(
        "web pages from {} may use this server with an API key only, and it "
        "has none: start the gateway with --api-key or --api-key-file",
        *origin));
  }
  const auto host = request.Find("host");
  if (host.has_value() && !IsLocalHost(*host) &&
      ListensOnLoopback(app.config)) {
    return openai::ForeignPage(fmt::format(
        "this server listens on {} and knows itself by that address or as "
        "localhost, not as {}: use one of these, or start the gateway with "
        "--api-key or --api-key-file",
        app.config.host, *host));
  }
  return std::nullopt;
}

std::optional<openai::ApiError> Refusal(const App& app, const Route& route,
                                        const http::Request& request) {
  switch (route.access) {
    case Access::kOpen:
      return std::nullopt;
    case Access::kKey:
      if (app.keys.open()) return RefuseForeignPage(app, request);
      if (app.keys.Allows(request)) return std::nullopt;
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
    http::Response response = Preflight(request);
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
        {"allow", fmt::format("{}{}, OPTIONS", route->method,
                              route->method == "GET" ? ", HEAD" : "")});
    call.record.error = error.message;
    co_await Send(call.exchange, call.record, std::move(response));
    co_return;
  }
  if (auto refused = Refusal(call.app, *route, request)) {
    openai::ApiError error = *std::move(refused);
    co_await SendError(call.exchange, call.record, std::move(error));
    co_return;
  }
  const auto coding = request.Find("content-encoding");
  if (coding.has_value() && !coding->empty() &&
      !http::EqualsIgnoreCase(*coding, "identity")) {
    openai::ApiError error = openai::CodingNotKnown(std::string(*coding));
    co_await SendError(call.exchange, call.record, std::move(error));
    co_return;
  }
  co_await route->handler(call);
}

// Error texts may quote the client: they must not break the line, nor make the
// log something else than UTF-8.
std::string ForLog(std::string text) {
  if (text.size() > kMaxLogError) {
    text.resize(kMaxLogError);
    text += "...";
  }
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  }
  std::string_view rest = text;
  while (true) {
    rest.remove_prefix(ValidUtf8Bytes(rest));
    if (rest.empty()) return text;
    text[text.size() - rest.size()] = '?';
  }
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

// What a large request took in small pieces (its JSON, the template's objects)
// is free afterwards, but the allocator would keep it: up to a gigabyte that
// the engine could use. Any number of requests that end meanwhile cost one
// look.
void GiveMemoryBack(App& app) {
  if (app.giving_memory_back.exchange(true)) return;
  asio::post(*app.workers, [&app] {
    app.giving_memory_back = false;
    malloc_trim(0);
  });
}

}  // namespace

http::Response Refuse(App& app, int status, std::string_view message) {
  RequestRecord record;
  record.id = NewRequestId(app);
  record.status = status;
  const openai::ApiError error =
      RefusalError(status, message, std::size_t{app.config.max_body_mb} << 20);
  record.error = error.message;
  Log(record);
  http::Response response = ErrorResponse(error);
  response.headers.push_back({"x-request-id", record.id});
  return response;
}

asio::awaitable<void> Serve(App& app, http::Exchange& exchange) {
  RequestRecord record;
  record.id = RequestId(exchange.request(), app);
  const bool large = exchange.request().body.size() >= kLargeBody;
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
  if (large) GiveMemoryBack(app);
  if (record.status == 0) record.status = exchange.status();
  Log(record);
  app.metrics.Finished(record);
}

}  // namespace holdfast::gateway
