// GET /v1/cache/stats and POST /v1/cache/clear, and who may call them.
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gateway/service/local_request.h"
#include "gateway/service/testing/gateway_fixture.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "holdfast/v1/cache.grpc.pb.h"

namespace holdfast::gateway::testing {
namespace {

using http::testing::RawResponse;

class FakeCacheAdmin final : public v1::CacheAdmin::Service {
 public:
  std::vector<v1::Tier> cleared;

 private:
  grpc::Status Stats(grpc::ServerContext*, const v1::CacheStatsRequest*,
                     v1::CacheStats* response) override {
    v1::TierStats* tier = response->add_tiers();
    tier->set_tier(v1::TIER_DISK);
    tier->set_hits(5);
    return grpc::Status::OK;
  }
  grpc::Status Clear(grpc::ServerContext*, const v1::CacheClearRequest* request,
                     v1::CacheClearResponse* response) override {
    cleared.push_back(request->tier());
    response->set_entries(3);
    return grpc::Status::OK;
  }
};

class CacheEndpointsTest : public GatewayTest {
 protected:
  void StartCache() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + folder_ + "/cache.sock",
                             grpc::InsecureServerCredentials());
    builder.RegisterService(&cache_);
    cache_server_ = builder.BuildAndStart();
  }
  RawResponse Clear(const std::string& query, std::string_view headers = "") {
    return Post("/v1/cache/clear" + query, std::string(), headers);
  }

  FakeCacheAdmin cache_;
  std::unique_ptr<grpc::Server> cache_server_;
};

TEST_F(CacheEndpointsTest, StatsOfBothDaemons) {
  StartCache();
  StartAll();
  const RawResponse response = Get("/v1/cache/stats");
  EXPECT_EQ(response.status, 200);
  const json body = json::parse(response.body);
  EXPECT_EQ(body.at("engine").at("available"), true);
  EXPECT_EQ(body.at("engine").at("prompt_tokens"),
            json({{"computed", 1}, {"end", 2}}));
  EXPECT_EQ(body.at("cache_service").at("available"), true);
  EXPECT_EQ(body.at("cache_service").at("tiers").at(0).at("hits"), 5);
}

TEST_F(CacheEndpointsTest, AnAbsentDaemonIsNoError) {
  StartGateway();
  RawResponse response = Get("/v1/cache/stats");
  EXPECT_EQ(response.status, 200);
  json body = json::parse(response.body);
  EXPECT_EQ(body.at("engine").at("available"), false);
  EXPECT_NE(body.at("engine").at("reason"), "");
  EXPECT_EQ(body.at("cache_service").at("available"), false);
  response = Clear("?tier=all");
  EXPECT_EQ(response.status, 200);
  body = json::parse(response.body).at("cleared");
  EXPECT_EQ(body.size(), 5u);
  for (const auto& [tier, part] : body.items()) {
    EXPECT_EQ(part.at("available"), false) << tier;
    EXPECT_NE(part.at("reason"), "") << tier;
  }
}

TEST_F(CacheEndpointsTest, TheOtherOneIsClearedAllTheSame) {
  StartCache();
  StartGateway();
  const json body = json::parse(Clear("?tier=all").body).at("cleared");
  EXPECT_EQ(body.at("resident").at("available"), false);
  EXPECT_EQ(body.at("disk"), json({{"available", true}, {"entries", 3}}));
}

TEST_F(CacheEndpointsTest, ClearsWhatIsNamed) {
  StartCache();
  StartAll();
  const auto cleared = [this](const std::string& query) {
    cache_.cleared.clear();
    const RawResponse response = Clear(query);
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body).at("cleared");
  };
  json body = cleared("");
  EXPECT_EQ(body.at("resident"), json({{"available", true}, {"blocks", 7}}));
  EXPECT_EQ(body.at("store"), json({{"available", true}, {"entries", 3}}));
  EXPECT_EQ(body.at("response"), json({{"available", true}, {"entries", 2}}));
  EXPECT_EQ(body.size(), 3u);  // nothing on the NVMe
  EXPECT_EQ(cache_.cleared, std::vector{v1::TIER_STORE});
  EXPECT_EQ(engine_->clear_calls(), 1);
  EXPECT_EQ(cleared("?tier=resident").size(), 1u);
  EXPECT_EQ(engine_->clear_calls(), 2);
  EXPECT_TRUE(cache_.cleared.empty());
  EXPECT_EQ(cleared("?tier=response"),
            json({{"response", {{"available", true}, {"entries", 2}}}}));
  EXPECT_EQ(engine_->clear_calls(), 2);
  EXPECT_EQ(cleared("?tier=store").size(), 1u);
  EXPECT_EQ(cache_.cleared, std::vector{v1::TIER_STORE});
  EXPECT_EQ(cleared("?tier=disk").size(), 1u);
  EXPECT_EQ(cache_.cleared, std::vector{v1::TIER_DISK});
  EXPECT_EQ(cleared("?tier=spill").size(), 1u);
  EXPECT_EQ(cache_.cleared, std::vector{v1::TIER_SPILL});
  EXPECT_EQ(engine_->clear_calls(), 2);
  EXPECT_EQ(cleared("?tier=all").size(), 5u);
  EXPECT_EQ(cache_.cleared,
            (std::vector{v1::TIER_STORE, v1::TIER_DISK, v1::TIER_SPILL}));
  EXPECT_EQ(engine_->clear_calls(), 3);
}

TEST_F(CacheEndpointsTest, WhatIsNotUnderstoodClearsNothing) {
  StartCache();
  StartAll();
  for (const char* query :
       {"?tier=", "?tier=ram", "?tier", "?teir=disk", "?tier=store&tier=disk",
        "?all", "?tier=store%20"}) {
    const RawResponse response = Clear(query);
    EXPECT_EQ(response.status, 400) << query;
    EXPECT_TRUE(json::parse(response.body).contains("error")) << query;
  }
  const json twice = json::parse(Clear("?tier=store&dry_run=1").body);
  EXPECT_EQ(twice.at("error").at("message"),
            "dry_run: the only parameter is tier, given once");
  EXPECT_TRUE(cache_.cleared.empty());
  EXPECT_EQ(engine_->clear_calls(), 0);
  EXPECT_EQ(Get("/v1/cache/clear").status, 405);
}

TEST_F(CacheEndpointsTest, OnlyThisMachineOrAnAdminToken) {
  const std::string file = folder_ + "/admin";
  std::ofstream(file) << "from-file\n";
  config_.api_keys = {"key"};
  config_.admin_tokens = {"token"};
  config_.admin_token_file = file;
  StartAll();
  const auto status = [this](const std::string& headers) {
    const int got = Get("/v1/cache/stats", headers).status;
    EXPECT_EQ(Clear("", headers).status, got) << headers;
    return got;
  };
  EXPECT_EQ(status(""), 200);
  EXPECT_EQ(status("origin: http://localhost:3000\r\n"), 200);
  // Over loopback all the same, but not from here.
  const std::string proxied = "x-forwarded-for: 10.0.0.9\r\n";
  EXPECT_EQ(status(proxied), 403);
  EXPECT_EQ(status("forwarded: for=10.0.0.9\r\n"), 403);
  EXPECT_EQ(status("origin: https://example.com\r\n"), 403);
  EXPECT_EQ(status("origin: null\r\n"), 403);
  EXPECT_EQ(status(proxied + "authorization: Bearer key\r\n"), 403);
  EXPECT_EQ(status(proxied + "authorization: Bearer token\r\n"), 200);
  EXPECT_EQ(status(proxied + "authorization: Bearer from-file\r\n"), 200);
  // An admin token is no API key.
  EXPECT_EQ(Post("/v1/chat/completions", Chat().dump(),
                 "authorization: Bearer token\r\n")
                .status,
            401);
  const json error =
      json::parse(Get("/v1/cache/stats", proxied).body).at("error");
  EXPECT_EQ(error.at("type"), "permission_error");
  EXPECT_NE(error.at("message").get<std::string>().find("--admin-token"),
            std::string::npos);
}

TEST_F(CacheEndpointsTest, WithoutTokensNobodyElseIsLetIn) {
  StartAll();
  EXPECT_EQ(Get("/v1/cache/stats",
                "x-forwarded-for: 10.0.0.9\r\nauthorization: Bearer x\r\n")
                .status,
            403);
}

TEST(LocalRequestTest, FromThisMachine) {
  http::Request request;
  EXPECT_FALSE(IsFromThisMachine(request));
  request.from_loopback = true;
  EXPECT_TRUE(IsFromThisMachine(request));
  for (const char* host :
       {"localhost", "localhost:8000", "127.0.0.1:1", "[::1]", "[::1]:8000"}) {
    request.headers = {{"host", host}};
    EXPECT_TRUE(IsFromThisMachine(request)) << host;
  }
  for (const char* host : {"localhost.example.com", "example.com:8000", ""}) {
    request.headers = {{"host", host}};
    EXPECT_FALSE(IsFromThisMachine(request)) << host;
  }
}

}  // namespace
}  // namespace holdfast::gateway::testing
