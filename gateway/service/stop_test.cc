// Stops of a gateway that has something in its way.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "gateway/engine/testing/take.h"
#include "gateway/service/testing/completions_fixture.h"
#include "gtest/gtest.h"
#include "spdlog/sinks/sink.h"
#include "spdlog/spdlog.h"

namespace holdfast::gateway::testing {
namespace {

// Holds the thread that logs a line with `mark` until it is let go, as a full
// pipe does.
class HoldingSink final : public spdlog::sinks::sink {
 public:
  explicit HoldingSink(std::string mark) : mark_(std::move(mark)) {}
  void log(const spdlog::details::log_msg& line) override {
    const std::string_view text(line.payload.data(), line.payload.size());
    if (text.find(mark_) == std::string_view::npos) return;
    held_.set_value();
    Take(let_go_.get_future());
    passed_.set_value();
  }
  void flush() override {}
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

  void WaitUntilHeld() { Take(held_.get_future()); }
  void LetGo() {
    let_go_.set_value();
    Take(passed_.get_future());
  }

 private:
  const std::string mark_;
  std::promise<void> held_;
  std::promise<void> let_go_;
  std::promise<void> passed_;
};

class StopTest : public CompletionsTest {};

TEST_F(StopTest, AnIoThreadThatDoesNotAnswerHoldsNoStopUp) {
  const auto sink = std::make_shared<HoldingSink>("hold-me");
  const auto usual = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("hold", sink));
  timings_.io = std::chrono::milliseconds(20);
  StartGateway();
  const auto client = Connect();
  client->SendRequest("GET", "/nowhere", "", "x-request-id: hold-me\r\n");
  sink->WaitUntilHeld();
  EXPECT_FALSE(gateway_->Drain([] { return false; }));
  gateway_.reset();
  spdlog::set_default_logger(usual);
  sink->LetGo();
}

// Its request was begun before the stop, so it gets an answer, but nobody waits
// for an engine any more.
TEST_F(StopTest, ARequestThatWaitsForAnEngineHoldsNoStopUp) {
  config_.engine_wait_ms = 600000;
  StartGateway();
  const auto client = Connect();
  const std::string body = Chat().dump();
  client->Send(
      "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
      "expect: 100-continue\r\ncontent-length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  client->ReadUntil("100 Continue\r\n\r\n");
  client->Send(body);
  auto drained = std::async(std::launch::async, [&] {
    return gateway_->Drain([] { return false; });
  });
  const http::testing::RawResponse response = client->ReadResponse();
  EXPECT_EQ(response.status, 503);
  EXPECT_TRUE(response.headers.contains("retry-after"));
  EXPECT_NE(response.body.find("the gateway is stopping"), std::string::npos)
      << response.body;
  client->Close();
  EXPECT_TRUE(Take(std::move(drained)));
}

}  // namespace
}  // namespace holdfast::gateway::testing
