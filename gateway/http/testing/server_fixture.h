// A server that answers what tests ask for.
#ifndef HOLDFAST_GATEWAY_HTTP_TESTING_SERVER_FIXTURE_H_
#define HOLDFAST_GATEWAY_HTTP_TESTING_SERVER_FIXTURE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "gateway/http/server.h"
#include "gtest/gtest.h"

namespace holdfast::http::testing {

namespace asio = boost::asio;

// Waits until `done` or 10 s; polls state that another thread changes.
template <typename Condition>
bool Eventually(Condition done) {
  for (int i = 0; i < 2000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// A server on a thread of its own. Paths of the handler:
//   /echo    answers method, path, query and body
//   /stream  "one", then waits for the client to go or for Release(), "two"
//   /big     streams 64 KiB pieces until writing fails
//   /throw   throws; /nothing answers nothing; /cut ends in mid-stream
class ServerTest : public ::testing::Test {
 protected:
  void Start(ServerLimits limits = {}) {
    ServerOptions options;
    options.limits = limits;
    options.handler = [this](Exchange& exchange) { return Handle(exchange); };
    options.refusal = [](int status, std::string_view message) {
      Response response;
      response.status = status;
      response.body = message;
      return response;
    };
    auto server = Server::Listen(io_, std::move(options));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    released_.expires_at(asio::steady_timer::time_point::max());
    thread_ = std::thread([this] { io_.run(); });
  }

  void TearDown() override {
    if (!thread_.joinable()) return;
    asio::post(io_, [this] {
      server_->CloseAll();
      released_.cancel();
    });
    EXPECT_TRUE(Eventually([&] { return server_->stats().connections == 0; }));
    io_.stop();
    thread_.join();
  }

  void Release() {
    asio::post(io_, [this] { released_.expires_at({}); });
  }

  asio::awaitable<void> Handle(Exchange& exchange) {
    const std::string path = exchange.request().path;
    if (path == "/throw") throw std::runtime_error("on purpose");
    if (path == "/nothing") co_return;
    if (path == "/cut") {
      Response head;
      (void)co_await exchange.BeginStream(std::move(head));
      (void)co_await exchange.Write("one");
      co_return;
    }
    if (path == "/stream") {
      co_await Stream(exchange);
      co_return;
    }
    if (path == "/big") {
      co_await Big(exchange);
      co_return;
    }
    const Request& request = exchange.request();
    Response response;
    response.content_type = "text/plain";
    response.body = request.method + " " + request.path + "?" + request.query +
                    " " + request.body;
    (void)co_await exchange.Reply(std::move(response));
  }

  asio::awaitable<void> Stream(Exchange& exchange) {
    Response head;
    head.content_type = "text/event-stream";
    (void)co_await exchange.BeginStream(std::move(head));
    (void)co_await exchange.Write("one");
    exchange.OnGone([this] {
      ++gone_;
      released_.cancel();
    });
    (void)co_await released_.async_wait(asio::as_tuple(asio::use_awaitable));
    exchange.OnGone(nullptr);
    if (exchange.gone()) co_return;
    (void)co_await exchange.Write("two");
    (void)co_await exchange.EndStream();
  }

  asio::awaitable<void> Big(Exchange& exchange) {
    Response head;
    (void)co_await exchange.BeginStream(std::move(head));
    const std::string piece(64 << 10, 'x');
    while (true) {
      const absl::Status status = co_await exchange.Write(piece);
      if (status.ok()) continue;
      big_status_.set_value(status);
      co_return;
    }
  }

  std::uint16_t port() const { return server_->port(); }
  const ServerStats& stats() const { return server_->stats(); }

  asio::io_context io_{1};
  asio::steady_timer released_{io_};
  std::unique_ptr<Server> server_;
  std::thread thread_;
  std::atomic<int> gone_{0};
  std::promise<absl::Status> big_status_;
};

}  // namespace holdfast::http::testing

#endif  // HOLDFAST_GATEWAY_HTTP_TESTING_SERVER_FIXTURE_H_
