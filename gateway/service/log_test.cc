// What requests leave in the log.
#include <memory>
#include <sstream>
#include <string>

#include "gateway/service/testing/gateway_fixture.h"
#include "gateway/tokenizer/utf8.h"
#include "gtest/gtest.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"

namespace holdfast::gateway::testing {
namespace {

class LogTest : public GatewayTest {
 protected:
  LogTest() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~LogTest() override { spdlog::set_default_logger(usual_); }

  // Ends the gateway, so that all of it is there.
  std::string Log() {
    gateway_.reset();
    return text_.str();
  }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::logger> usual_ = spdlog::default_logger();
};

TEST_F(LogTest, WhatClientsSendIsNoLineAndNoByteThatIsNoText) {
  StartGateway();
  EXPECT_EQ(Get("/v1/models/a\xff%0Ab\xc3").status, 404);
  // Cut inside a character.
  std::string path = "/";
  for (int i = 0; i < 500; ++i) path += "\xc3\xa9";
  EXPECT_EQ(Get(path).status, 404);
  EXPECT_EQ(Get(path + "x").status, 404);
  const std::string log = Log();
  EXPECT_EQ(ValidUtf8Bytes(log), log.size()) << log;
  EXPECT_NE(log.find("'a??b?' does not exist"), std::string::npos) << log;
}

TEST_F(LogTest, KeysAreNotLogged) {
  config_.api_keys = {"the-key"};
  config_.admin_tokens = {"the-token"};
  StartGateway();
  for (const std::string key : {"the-key", "the-token", "the-guess"}) {
    Get("/metrics", "authorization: Bearer " + key + "\r\n");
    Get("/metrics", "x-api-key: " + key + "\r\n");
    Get("/v1/cache/stats",
        "x-forwarded-for: a\r\nauthorization: Bearer " + key + "\r\n");
  }
  const std::string log = Log();
  EXPECT_NE(log.find("Invalid API key"), std::string::npos) << log;
  EXPECT_EQ(log.find("the-"), std::string::npos) << log;
}

}  // namespace
}  // namespace holdfast::gateway::testing
