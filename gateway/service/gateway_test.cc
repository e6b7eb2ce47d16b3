// Everything around completions: routes, keys, health, models, text, metrics.
#include "gateway/service/gateway.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <future>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "gateway/engine/testing/take.h"
#include "gateway/service/testing/gateway_fixture.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "holdfast/v1/cache.grpc.pb.h"

namespace holdfast::gateway::testing {
namespace {

using http::testing::RawResponse;

class ServiceTest : public GatewayTest {};

json ErrorOf(const RawResponse& response) {
  return json::parse(response.body).at("error");
}

TEST_F(ServiceTest, HealthFollowsTheEngine) {
  StartGateway();
  RawResponse response = Get("/health");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(json::parse(response.body).at("status"), "absent");
  EXPECT_TRUE(response.headers.contains("retry-after"));
  engine_->SetStatus(
      [](auto& status) { status.set_state(v1::EngineStatus::LOADING); });
  StartEngine();
  while (json::parse((response = Get("/v1/health")).body).at("status") ==
         "absent")
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(json::parse(response.body).at("status"), "loading");
  engine_->SetStatus(
      [](auto& status) { status.set_state(v1::EngineStatus::SERVING); });
  ASSERT_TRUE(WaitHealthy());
  EXPECT_EQ(json::parse(Get("/health").body), json({{"status", "ok"}}));
}

TEST_F(ServiceTest, Models) {
  engine_->SetStatus(
      [](auto& status) { status.set_model_name("maker/model one"); });
  StartAll();
  const json list = json::parse(Get("/v1/models").body);
  ASSERT_EQ(list.at("data").size(), 1u);
  const json& model = list.at("data").at(0);
  EXPECT_EQ(model.at("id"), "maker/model one");
  EXPECT_EQ(model.at("meta").at("n_ctx"), 4096);
  EXPECT_EQ(json::parse(Get("/v1/models/maker/model%20one").body), model);
  const RawResponse other = Get("/v1/models/other");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(ErrorOf(other).at("code"), "model_not_found");
}

TEST_F(ServiceTest, UnknownPathsAndMethods) {
  StartAll();
  EXPECT_EQ(Get("/nothing").status, 404);
  EXPECT_EQ(ErrorOf(Get("/v1/")).at("type"), "invalid_request_error");
  EXPECT_EQ(Get("/v1/models/").status, 404);
  const RawResponse wrong = Get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(Post("/health", json::object()).status, 405);
  const auto client = Connect();
  client->SendRequest("HEAD", "/health");
  EXPECT_EQ(client->ReadResponse(/*head=*/true).status, 200);
  client->SendRequest("HEAD", "/v1/chat/completions");
  EXPECT_EQ(client->ReadResponse(/*head=*/true).status, 405);
  EXPECT_EQ(Get("/").status, 200);
  EXPECT_EQ(Get("/version?x=y").status, 200);
}

TEST_F(ServiceTest, RequestIdsComeBack) {
  StartAll();
  EXPECT_EQ(
      Get("/health", "x-request-id: my-id.7\r\n").headers.at("x-request-id"),
      "my-id.7");
  const std::string made = Get("/health").headers.at("x-request-id");
  EXPECT_TRUE(made.starts_with("req-")) << made;
  EXPECT_NE(made, Get("/health").headers.at("x-request-id"));
  // What is not fit for a log line is replaced.
  EXPECT_TRUE(Get("/health", "x-request-id: a b\r\n")
                  .headers.at("x-request-id")
                  .starts_with("req-"));
  const std::string long_id(200, 'x');
  EXPECT_TRUE(Get("/health", "x-request-id: " + long_id + "\r\n")
                  .headers.at("x-request-id")
                  .starts_with("req-"));
  EXPECT_EQ(Post("/v1/chat/completions", Chat().dump(), "x-request-id: me\r\n")
                .headers.at("x-request-id"),
            "me");
  EXPECT_EQ(engine_->last_request().request_id(), "me");
}

TEST_F(ServiceTest, ApiKeys) {
  const std::string file = folder_ + "/keys";
  std::ofstream(file) << "# keys\n\n  from-file  \n";
  config_.api_keys = {"secret"};
  config_.api_key_file = file;
  StartAll();  // /health is open
  EXPECT_EQ(Get("/v1/models").status, 200);
  const std::string chat = Chat().dump();
  const auto status = [&](const std::string& headers) {
    return Post("/v1/chat/completions", chat, headers).status;
  };
  EXPECT_EQ(status(""), 401);
  EXPECT_EQ(status("authorization: Bearer wrong\r\n"), 401);
  EXPECT_EQ(status("authorization: Bearer secre\r\n"), 401);
  EXPECT_EQ(status("authorization: Bearer \r\n"), 401);
  EXPECT_EQ(status("authorization: Basic secret\r\n"), 401);
  EXPECT_EQ(status("x-api-key: # keys\r\n"), 401);
  EXPECT_EQ(status("authorization: Bearer secret\r\n"), 200);
  EXPECT_EQ(status("authorization: bearer from-file\r\n"), 200);
  EXPECT_EQ(status("x-api-key: secret\r\n"), 200);
  EXPECT_EQ(status("authorization: Bearer none\r\nx-api-key: secret\r\n"), 200);
  EXPECT_EQ(Get("/metrics").status, 401);
  const json error = ErrorOf(Post("/tokenize", json::object()));
  EXPECT_EQ(error.at("type"), "authentication_error");
}

TEST_F(ServiceTest, Cors) {
  StartAll();
  const auto origin = [&](const std::string& value) {
    const auto headers = Get("/health", "origin: " + value + "\r\n").headers;
    const auto found = headers.find("access-control-allow-origin");
    return found == headers.end() ? "" : found->second;
  };
  EXPECT_EQ(origin("http://localhost:3000"), "http://localhost:3000");
  EXPECT_EQ(origin("http://127.0.0.1"), "http://127.0.0.1");
  EXPECT_EQ(origin("https://example.com"), "");
  EXPECT_EQ(origin("http://localhost.example.com"), "");
  EXPECT_EQ(origin("http://127.0.0.1.example.com"), "");
  EXPECT_EQ(origin("http://localhost:80.example.com"), "");
  EXPECT_EQ(origin("https://localhost"), "https://localhost");
  const auto client = Connect();
  client->SendRequest("OPTIONS", "/v1/chat/completions", "",
                      "origin: http://localhost:3000\r\n");
  const RawResponse preflight = client->ReadResponse();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_TRUE(preflight.headers.contains("access-control-allow-headers"));
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"),
            "http://localhost:3000");
}

TEST_F(ServiceTest, PreflightsAllowTheHeadersThatAreAskedFor) {
  StartAll();
  const auto allowed = [this](const std::string& asked) {
    const auto client = Connect();
    client->SendRequest(
        "OPTIONS", "/v1/chat/completions", "",
        "origin: http://localhost\r\naccess-control-request-headers: " + asked +
            "\r\n");
    return client->ReadResponse().headers.at("access-control-allow-headers");
  };
  EXPECT_EQ(allowed("content-type,x-stainless-os"),
            "content-type,x-stainless-os");
  const std::string usual = allowed("");
  EXPECT_NE(usual.find("authorization"), std::string::npos);
  EXPECT_EQ(allowed("x; y"), usual);
  EXPECT_EQ(allowed(std::string(2000, 'x')), usual);
}

TEST_F(ServiceTest, WhatIsNoRequestIsAnsweredLikeOne) {
  config_.max_body_mb = 1;
  StartGateway();
  const auto code = [this](const std::string& bytes, int status) {
    const auto client = Connect();
    client->Send(bytes);
    const RawResponse response = client->ReadResponse();
    EXPECT_EQ(response.status, status) << bytes.substr(0, 60);
    EXPECT_TRUE(response.headers.at("x-request-id").starts_with("req-"));
    return ErrorOf(response).at("code").get<std::string>();
  };
  const std::string post = "POST /tokenize HTTP/1.1\r\nhost: localhost\r\n";
  EXPECT_EQ(code(post + "content-length: 2000000\r\n\r\n", 413),
            "request_too_large");
  EXPECT_EQ(code(post + "x: " + std::string(40'000, 'x') + "\r\n\r\n", 431),
            "headers_too_large");
  EXPECT_EQ(code(post + "no colon here\r\n\r\n", 400), "invalid_http");
  EXPECT_EQ(code("GET / HTTP/1.1\r\n\r\n", 400), "invalid_http");
  EXPECT_EQ(code(post + "expect: cake\r\ncontent-length: 2\r\n\r\n", 417),
            "expectation_failed");
}

TEST_F(ServiceTest, HttpAsItIsWritten) {
  StartAll();
  const auto client = Connect();
  client->Send(
      "GET http://localhost/v1/models?x=1 HTTP/1.1\r\nhost: a\r\n\r\n");
  EXPECT_EQ(client->ReadResponse().status, 200);
  // What the target names is the host.
  client->Send(
      "GET http://evil.example/metrics HTTP/1.1\r\n"
      "host: localhost\r\n\r\n");
  EXPECT_EQ(client->ReadResponse().status, 403);
  client->SendRequest("DELETE", "/v1/models");
  EXPECT_EQ(client->ReadResponse().headers.at("allow"), "GET, HEAD, OPTIONS");
  client->SendRequest("DELETE", "/tokenize");
  EXPECT_EQ(client->ReadResponse().headers.at("allow"), "POST, OPTIONS");
  client->SendRequest("OPTIONS", "/tokenize");
  const RawResponse preflight = client->ReadResponse();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_FALSE(preflight.headers.contains("content-length"));
  const RawResponse coded =
      Post("/v1/chat/completions", Chat().dump(), "content-encoding: gzip\r\n");
  EXPECT_EQ(coded.status, 415);
  EXPECT_EQ(ErrorOf(coded).at("code"), "unsupported_encoding");
  EXPECT_EQ(Post("/v1/chat/completions", Chat().dump(),
                 "content-encoding: identity\r\n")
                .status,
            200);
  EXPECT_NE(ErrorOf(Post("/tokenize", std::string()))
                .at("message")
                .get<std::string>()
                .find("is empty"),
            std::string::npos);
}

// A browser sends a page's request and only keeps the answer from the page.
TEST_F(ServiceTest, PagesFromElsewhereNeedAnApiKey) {
  StartAll();
  const std::string chat = Chat().dump();
  const auto post = [&](const std::string& headers) {
    return Post("/v1/chat/completions", chat,
                headers + "content-type: text/plain\r\n");
  };
  EXPECT_EQ(post("origin: http://localhost:3000\r\n").status, 200);
  for (const std::string site :
       {"https://evil.example", "null", "http://localhost.evil.example",
        "http://127.0.0.1.evil.example", "file://"}) {
    const RawResponse refused = post("origin: " + site + "\r\n");
    EXPECT_EQ(refused.status, 403) << site;
    const json error = ErrorOf(refused);
    EXPECT_EQ(error.at("code"), "foreign_page");
    EXPECT_NE(error.at("message").get<std::string>().find(
                  site + " may use this server with an API key only"),
              std::string::npos);
    EXPECT_NE(error.at("message").get<std::string>().find("--api-key-file"),
              std::string::npos);
  }
  EXPECT_EQ(Post("/tokenize", "{}", "origin: https://evil.example\r\n").status,
            403);
  EXPECT_EQ(Get("/metrics", "origin: https://evil.example\r\n").status, 403);
}

TEST_F(ServiceTest, NamesOfElsewhereThatPointHereNeedAnApiKey) {
  StartAll();
  const auto status = [this](const std::string& host) {
    const auto client = Connect();
    const std::string body = Chat().dump();
    client->Send("POST /v1/chat/completions HTTP/1.1\r\nhost: " + host +
                 "\r\ncontent-length: " + std::to_string(body.size()) +
                 "\r\n\r\n" + body);
    return client->ReadResponse().status;
  };
  for (const char* host : {"localhost", "LocalHost:8000", "127.0.0.1:8000",
                           "127.1.2.3", "[::1]:8000"})
    EXPECT_EQ(status(host), 200) << host;
  for (const char* host : {"evil.example", "evil.example:8000", "10.0.0.1",
                           "127.0.0.1.evil.example", "[::2]"})
    EXPECT_EQ(status(host), 403) << host;
}

TEST_F(ServiceTest, WithKeysOrOnANetworkHostsAreNotLookedAt) {
  config_.host = "0.0.0.0";
  StartAll();
  const std::string body = Chat().dump();
  const std::string request =
      "POST /v1/chat/completions HTTP/1.1\r\nhost: box.example\r\n"
      "authorization: Bearer k\r\ncontent-length: " +
      std::to_string(body.size()) + "\r\n";
  const auto status = [&](const std::string& headers) {
    const auto client = Connect();
    client->Send(request + headers + "\r\n" + body);
    return client->ReadResponse().status;
  };
  EXPECT_EQ(status(""), 200);
  EXPECT_EQ(status("origin: https://evil.example\r\n"), 403);
  gateway_.reset();
  config_.host = "127.0.0.1";
  config_.api_keys = {"k"};
  StartGateway();
  ASSERT_TRUE(WaitHealthy());
  EXPECT_EQ(status(""), 200);
  EXPECT_EQ(status("origin: https://evil.example\r\n"), 200);
}

TEST_F(ServiceTest, TokenizeAndBack) {
  StartAll();
  const json body = json::parse(
      Post("/tokenize", json{{"content", "a\xc3\xa9<|im_end|>"}}).body);
  EXPECT_EQ(body.at("tokens"), json({'a', 0xc3, 0xa9, kImEnd}));
  EXPECT_EQ(body.at("count"), 4);
  const json plain =
      json::parse(Post("/tokenize",
                       json{{"prompt", "<|im_end|>"}, {"parse_special", false}})
                      .body);
  EXPECT_EQ(plain.at("tokens"), json(Bytes("<|im_end|>")));
  const json pieces = json::parse(
      Post("/tokenize", json{{"content", "a\xc3\xa9"}, {"with_pieces", true}})
          .body);
  EXPECT_EQ(pieces.at("tokens"), json({{{"id", 'a'}, {"piece", "a"}},
                                       {{"id", 0xc3}, {"piece", {0xc3}}},
                                       {{"id", 0xa9}, {"piece", {0xa9}}}}));
  EXPECT_EQ(
      json::parse(Post("/detokenize", json{{"tokens", body.at("tokens")}}).body)
          .at("content"),
      "a\xc3\xa9<|im_end|>");
  // Wrong input is named.
  EXPECT_EQ(ErrorOf(Post("/tokenize", json::object())).at("param"), "content");
  EXPECT_EQ(ErrorOf(Post("/tokenize", json{{"content", 7}})).at("param"),
            "content");
  EXPECT_EQ(
      ErrorOf(Post("/detokenize", json{{"tokens", {1, 300}}})).at("param"),
      "tokens[1]");
  EXPECT_EQ(ErrorOf(Post("/detokenize", json{{"tokens", {-1}}})).at("param"),
            "tokens[0]");
  EXPECT_EQ(Post("/tokenize", std::string("[]")).status, 400);
  EXPECT_EQ(Post("/tokenize", std::string("{")).status, 400);
}

class FakeCacheAdmin final : public v1::CacheAdmin::Service {
  grpc::Status Metrics(grpc::ServerContext*, const v1::CacheMetricsRequest*,
                       v1::CacheMetrics* response) override {
    response->set_prometheus_text("fake_cache_metric 1\n");
    return grpc::Status::OK;
  }
};

TEST_F(ServiceTest, MetricsOfTheCacheService) {
  StartGateway();
  FakeCacheAdmin service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + folder_ + "/cache.sock",
                           grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const std::string body = Get("/metrics").body;
  EXPECT_NE(body.find("holdfast_up{daemon=\"cachesvc\"} 1"), std::string::npos);
  EXPECT_NE(body.find("holdfast_up{daemon=\"engine\"} 0"), std::string::npos);
  EXPECT_NE(body.find("\nfake_cache_metric 1\n"), std::string::npos);
}

TEST_F(ServiceTest, MetricsOfAllDaemons) {
  StartAll();
  Post("/v1/chat/completions", Chat());
  Get("/nothing");
  Get("/v1/models/some-name");
  const RawResponse response = Get("/metrics");
  EXPECT_TRUE(response.headers.at("content-type").starts_with("text/plain"));
  const auto has = [&](const std::string& line) {
    EXPECT_NE(response.body.find(line + "\n"), std::string::npos) << line;
  };
  has("fake_engine_metric 1");
  has("holdfast_up{daemon=\"engine\"} 1");
  has("holdfast_up{daemon=\"cachesvc\"} 0");
  has("holdfast_http_requests_total{code=\"200\",path=\"/v1/chat/completions\"}"
      " 1");
  has("holdfast_http_requests_total{code=\"404\",path=\"other\"} 1");
  has("holdfast_http_requests_total{code=\"404\",path=\"/v1/models/\"} 1");
  has("holdfast_http_time_to_first_token_seconds_count 1");
  has("holdfast_http_connections 1");
  // One TYPE line a metric, or scrapers refuse the page.
  std::set<std::string> types;
  std::istringstream lines(response.body);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# TYPE")) continue;
    EXPECT_TRUE(types.insert(line).second) << line;
  }
  engine_->Kill();
  EXPECT_NE(Get("/metrics").body.find("holdfast_up{daemon=\"engine\"} 0"),
            std::string::npos);
}

TEST_F(ServiceTest, LargeBodies) {
  config_.max_body_mb = 1;
  StartAll();
  const RawResponse response =
      Post("/v1/chat/completions", std::string(3 << 20, ' '));
  EXPECT_EQ(response.status, 413);
  EXPECT_TRUE(ErrorOf(response).at("message").is_string());
  EXPECT_EQ(Post("/v1/chat/completions", Chat()).status, 200);
}

TEST_F(ServiceTest, DrainLetsAnswersEnd) {
  StartAll();
  std::promise<void> go_on;
  auto went_on = go_on.get_future();
  engine_->SetGenerator([&](const auto&, auto&, auto& writer) {
    writer.Write(Tokens(Bytes("one")));
    Take(std::move(went_on));
    writer.Write(Tokens(Bytes("two")));
    writer.Write(Finished(v1::Finished::STOP, 0, 1, 6));
    return grpc::Status::OK;
  });
  const auto client = Connect();
  client->SendRequest("POST", "/v1/chat/completions",
                      Chat({{"stream", true}}).dump());
  const std::string begin = client->ReadUntil("one\"");
  const auto idle = Connect();
  auto drained = std::async(std::launch::async, [&] {
    return gateway_->Drain([] { return false; });
  });
  EXPECT_TRUE(idle->AtEnd());
  idle->Close();
  go_on.set_value();
  EXPECT_NE(client->ReadUntil("[DONE]").find("two"), std::string::npos);
  client->ReadUntil("0\r\n\r\n");
  client->Close();
  EXPECT_TRUE(Take(std::move(drained)));
}

TEST_F(ServiceTest, DrainGivesUpAndCuts) {
  StartAll();
  std::promise<bool> cancelled;
  engine_->SetGenerator([&](const auto&, auto& context, auto& writer) {
    writer.Write(Tokens(Bytes("one")));
    cancelled.set_value(WaitForCancel(context));
    return grpc::Status::CANCELLED;
  });
  const auto client = Connect();
  client->SendRequest("POST", "/v1/chat/completions",
                      Chat({{"stream", true}}).dump());
  client->ReadUntil("one\"");
  EXPECT_FALSE(gateway_->Drain([] { return true; }));
  gateway_.reset();
  EXPECT_TRUE(Take(cancelled.get_future()));
  EXPECT_EQ(client->ReadUntil("[DONE]").find("[DONE]"), std::string::npos);
}

TEST_F(ServiceTest, HeartbeatGoesOn) {
  StartGateway();
  const std::uint64_t before = gateway_->heartbeat();
  for (int i = 0; i < 2000 && gateway_->heartbeat() == before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GT(gateway_->heartbeat(), before);
}

TEST_F(ServiceTest, ConfigurationThatCannotBe) {
  const auto refused = [&](const char* what) {
    const auto gateway = Gateway::Start(config_, timings_);
    EXPECT_EQ(gateway.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(gateway.status().message().find(what), std::string::npos)
        << gateway.status();
    config_ = GatewayConfig();
    config_.run_dir = folder_;
    config_.port = 0;
  };
  config_.max_connections = 0;
  refused("--max-connections");
  config_.host = "nowhere";
  refused("--host nowhere");
  config_.api_key_file = folder_ + "/absent";
  refused("--api-key-file");
  std::ofstream(folder_ + "/empty") << "# none\n";
  config_.api_key_file = folder_ + "/empty";
  refused("holds no key");
  config_.debug_answers = folder_ + "/absent";
  refused("--debug-answers");
}

TEST_F(ServiceTest, PortInUse) {
  StartGateway();
  config_.port = gateway_->port();
  const auto second = Gateway::Start(config_, timings_);
  EXPECT_NE(second.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(second.status().message().find(std::to_string(config_.port)),
            std::string::npos)
      << second.status();
}

TEST_F(ServiceTest, DebugAnswersNeedADebugEngine) {
  config_.debug_answers = folder_ + "/answers";
  std::ofstream(config_.debug_answers) << R"({"pattern":"x","answer":"y"})";
  StartEngine();
  StartGateway();
  for (int i = 0; i < 2000 && !gateway_->fatal().has_value(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_TRUE(gateway_->fatal().has_value());
  EXPECT_NE(gateway_->fatal()->message().find("--debug"), std::string::npos);
}

}  // namespace
}  // namespace holdfast::gateway::testing
