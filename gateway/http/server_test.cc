#include "gateway/http/server.h"

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "fmt/format.h"
#include "gateway/http/testing/raw_client.h"
#include "gtest/gtest.h"

namespace holdfast::http {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using testing::RawClient;
using testing::RawResponse;

// Waits until `done` or 10 s; polls state that another thread changes.
template <typename Condition>
bool Eventually(Condition done) {
  for (int i = 0; i < 2000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(milliseconds(5));
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

TEST_F(ServerTest, KeepsTheConnectionForMoreRequests) {
  Start();
  RawClient client(port());
  for (int i = 0; i < 3; ++i) {
    client.SendRequest("POST", "/echo?a=b", fmt::format("body {}", i));
    const RawResponse response = client.ReadResponse();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, fmt::format("POST /echo?a=b body {}", i));
    EXPECT_FALSE(response.headers.contains("connection"));
  }
  EXPECT_EQ(stats().accepted, 1u);
}

TEST_F(ServerTest, ClosesWhenTheClientAsksTo) {
  Start();
  RawClient client(port());
  client.SendRequest("GET", "/echo", "", "connection: close\r\n");
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("connection"), "close");
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(ServerTest, Http10) {
  Start();
  RawClient client(port());
  client.Send("GET /echo HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
  RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.headers.at("connection"), "keep-alive");
  // Chunked coding is unknown to HTTP/1.0: a stream ends with its connection.
  client.Send("GET /stream HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
  Release();
  response = client.ReadResponse();
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
  EXPECT_EQ(response.body, "onetwo");
}

TEST_F(ServerTest, AnswersPipelinedRequestsInOrder) {
  Start();
  RawClient client(port());
  std::string all;
  for (int i = 0; i < 20; ++i) {
    all += fmt::format(
        "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\n{:02}", i);
  }
  client.Send(all);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(client.ReadResponse().body, fmt::format("POST /echo? {:02}", i));
}

// More is sent behind a running request than the server reads: the rest waits
// in the socket and is answered, and the client's close is noticed even so.
TEST_F(ServerTest, FullPipeline) {
  ServerLimits limits;
  limits.pipeline_bytes = 8 << 10;
  Start(limits);
  const std::string request = fmt::format(
      "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 6000\r\n\r\n{}",
      std::string(6000, 'b'));
  {
    RawClient client(port());
    client.Send("GET /stream HTTP/1.1\r\nhost: t\r\n\r\n");
    client.ReadUntil("one");
    for (int i = 0; i < 5; ++i) client.Send(request);
    Release();
    EXPECT_TRUE(client.ReadUntil("two").ends_with("two"));
    client.ReadUntil("0\r\n\r\n");
    for (int i = 0; i < 5; ++i) EXPECT_EQ(client.ReadResponse().status, 200);
  }
  std::promise<void> armed;
  asio::post(io_, [&] {
    released_.expires_at(asio::steady_timer::time_point::max());
    armed.set_value();
  });
  armed.get_future().wait();
  RawClient client(port());
  client.Send("GET /stream HTTP/1.1\r\nhost: t\r\n\r\n");
  client.ReadUntil("one");
  for (int i = 0; i < 5; ++i) client.Send(request);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return gone_ == 1; }));
}

TEST_F(ServerTest, ChunkedRequestBody) {
  Start();
  RawClient client(port());
  client.Send(
      "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n"
      "4\r\nhell\r\n1;x=y\r\no\r\n0\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().body, "POST /echo? hello");
}

TEST_F(ServerTest, HeadHasNoBody) {
  Start();
  RawClient client(port());
  client.SendRequest("HEAD", "/echo");
  const RawResponse response = client.ReadResponse(/*head=*/true);
  EXPECT_EQ(response.headers.at("content-length"), "12");
  client.SendRequest("GET", "/echo");
  const RawResponse next = client.ReadResponse();
  EXPECT_EQ(next.status, 200);  // nothing stood in between
  EXPECT_EQ(next.body, "GET /echo? ");
}

TEST_F(ServerTest, ExpectContinue) {
  Start();
  RawClient client(port());
  client.Send(
      "POST /echo HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\n"
      "content-length: 2\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().status, 100);
  client.Send("ok");
  EXPECT_EQ(client.ReadResponse().body, "POST /echo? ok");
  client.Send(
      "POST /echo HTTP/1.1\r\nhost: t\r\nexpect: tea\r\n"
      "content-length: 2\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().status, 417);
}

TEST_F(ServerTest, StreamsPieceByPiece) {
  Start();
  RawClient client(port());
  client.SendRequest("GET", "/stream");
  const std::string first = client.ReadUntil("one");  // before "two" exists
  EXPECT_NE(first.find("transfer-encoding: chunked"), std::string::npos);
  Release();
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "\r\n3\r\ntwo\r\n0\r\n\r\n");
  EXPECT_EQ(gone_, 0);
  EXPECT_EQ(stats().client_gone, 0u);
}

TEST_F(ServerTest, NoticesThatTheClientCloses) {
  Start();
  RawClient client(port());
  client.SendRequest("GET", "/stream");
  client.ReadUntil("one");
  client.Close();
  EXPECT_TRUE(Eventually([&] { return gone_ == 1; }));
  EXPECT_EQ(stats().client_gone, 1u);
}

TEST_F(ServerTest, HalfCloseCountsAsGone) {
  Start();
  RawClient client(port());
  client.SendRequest("GET", "/stream");
  client.ReadUntil("one");
  client.HalfClose();
  EXPECT_TRUE(Eventually([&] { return gone_ == 1; }));
}

TEST_F(ServerTest, DropsAClientThatTakesNothing) {
  ServerLimits limits;
  limits.write = milliseconds(50);
  Start(limits);
  RawClient client(port(), /*receive_buffer=*/4096);
  client.SendRequest("GET", "/big");
  auto dropped = big_status_.get_future();
  ASSERT_EQ(dropped.wait_for(std::chrono::seconds(10)),
            std::future_status::ready);
  const absl::Status status = dropped.get();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(stats().write_timeouts, 1u);
}

TEST_F(ServerTest, SlowRequestGets408) {
  ServerLimits limits;
  limits.read = milliseconds(50);
  Start(limits);
  RawClient header(port());
  header.Send("GET /echo HTTP/1.1\r\nhost");
  EXPECT_EQ(header.ReadResponse().status, 408);
  EXPECT_TRUE(header.AtEnd());
  RawClient body(port());
  body.Send("POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 9\r\n\r\nabc");
  const RawResponse response = body.ReadResponse();
  EXPECT_EQ(response.status, 408);
  EXPECT_EQ(response.headers.at("connection"), "close");
  EXPECT_EQ(stats().read_timeouts, 2u);
}

TEST_F(ServerTest, IdleConnectionsAreClosed) {
  ServerLimits limits;
  limits.idle = milliseconds(50);
  Start(limits);
  RawClient fresh(port());
  EXPECT_TRUE(fresh.AtEnd());
  RawClient used(port());
  used.SendRequest("GET", "/echo");
  EXPECT_EQ(used.ReadResponse().status, 200);
  EXPECT_TRUE(used.AtEnd());
}

TEST_F(ServerTest, LargeBodyGets413) {
  ServerLimits limits;
  limits.body_bytes = 1000;
  Start(limits);
  RawClient exact(port());
  exact.SendRequest("POST", "/echo", std::string(1000, 'x'));
  EXPECT_EQ(exact.ReadResponse().status, 200);
  exact.SendRequest("POST", "/echo", std::string(1001, 'x'));
  EXPECT_EQ(exact.ReadResponse().status, 413);
  // A client that sends all of a huge body before it reads sees the answer too.
  RawClient huge(port());
  EXPECT_TRUE(huge.SendRequest("POST", "/echo", std::string(20 << 20, 'x')));
  EXPECT_EQ(huge.ReadResponse().status, 413);
  RawClient chunked(port());
  chunked.Send(
      "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n" +
      fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", 1001, std::string(1001, 'x')));
  EXPECT_EQ(chunked.ReadResponse().status, 413);
  // Not asked to go on, the client keeps its body to itself.
  RawClient polite(port());
  polite.Send(
      "POST /echo HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\n"
      "content-length: 1001\r\n\r\n");
  EXPECT_EQ(polite.ReadResponse().status, 413);
}

TEST_F(ServerTest, LargeHeadersGet431) {
  ServerLimits limits;
  limits.header_bytes = 2000;
  Start(limits);
  RawClient client(port());
  client.SendRequest("GET", "/echo", "",
                     "x-long: " + std::string(3000, 'x') + "\r\n");
  EXPECT_EQ(client.ReadResponse().status, 431);
  RawClient endless(port());
  endless.Send("GET /" + std::string(100 << 10, 'x'));
  EXPECT_EQ(endless.ReadResponse().status, 431);
}

TEST_F(ServerTest, GarbageGets400AndOthersGoOn) {
  Start();
  RawClient good(port());
  const std::vector<std::string> bad = {
      "\r\n\r\n\r\n",
      "GET\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      "GET / FTP/1.1\r\n\r\n",
      "G\x01T / HTTP/1.1\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15),
      "GET / HTTP/1.1\r\nno colon here\r\n\r\n",
      "GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
      "GET / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
      "POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: "
      "chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n\r\n",
  };
  for (const std::string& bytes : bad) {
    RawClient client(port());
    client.Send(bytes);
    EXPECT_EQ(client.ReadResponse().status, 400) << bytes;
  }
  EXPECT_EQ(stats().bad_requests, bad.size());
  good.SendRequest("GET", "/echo");
  EXPECT_EQ(good.ReadResponse().status, 200);
}

TEST_F(ServerTest, ConnectionsOverTheLimitGet503) {
  ServerLimits limits;
  limits.connections = 2;
  Start(limits);
  auto first = std::make_unique<RawClient>(port());
  RawClient second(port());
  first->SendRequest("GET", "/echo");
  EXPECT_EQ(first->ReadResponse().status, 200);
  second.SendRequest("GET", "/echo");
  EXPECT_EQ(second.ReadResponse().status, 200);
  RawClient third(port());
  third.SendRequest("GET", "/echo");
  EXPECT_EQ(third.ReadResponse().status, 503);
  EXPECT_EQ(stats().refused, 1u);
  first.reset();
  EXPECT_TRUE(Eventually([&] {
    RawClient next(port());
    next.SendRequest("GET", "/echo");
    return next.ReadResponse().status == 200;
  }));
}

TEST_F(ServerTest, ManyIdleConnectionsHoldNothingUp) {
  Start();
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 400; ++i)
    idle.push_back(std::make_unique<RawClient>(port()));
  std::vector<std::unique_ptr<RawClient>> streams;
  for (int i = 0; i < 50; ++i) {
    streams.push_back(std::make_unique<RawClient>(port()));
    streams.back()->SendRequest("GET", "/stream");
  }
  for (auto& stream : streams) stream->ReadUntil("one");
  for (auto& client : idle) {
    client->SendRequest("GET", "/echo");
    EXPECT_EQ(client->ReadResponse().status, 200);
  }
  EXPECT_EQ(stats().connections, 450u);
}

TEST_F(ServerTest, HandlerThatFails) {
  Start();
  RawClient client(port());
  client.SendRequest("GET", "/throw");
  EXPECT_EQ(client.ReadResponse().status, 500);
  client.SendRequest("GET", "/nothing");
  EXPECT_EQ(client.ReadResponse().status, 500);
  client.SendRequest("GET", "/echo");
  EXPECT_EQ(client.ReadResponse().status, 200);
}

// A stream that its handler left unfinished must not look complete.
TEST_F(ServerTest, UnfinishedStreamIsCut) {
  Start();
  RawClient client(port());
  client.SendRequest("GET", "/cut");
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.body, "one");
  EXPECT_FALSE(response.complete);
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(ServerTest, DrainFinishesWhatRuns) {
  ServerLimits limits;
  limits.linger = milliseconds(20);
  Start(limits);
  RawClient idle(port());
  idle.SendRequest("GET", "/echo");
  idle.ReadResponse();
  RawClient running(port());
  running.SendRequest("GET", "/stream");
  running.ReadUntil("one");
  const std::uint16_t old_port = port();
  asio::post(io_, [this] { server_->Drain(); });
  EXPECT_TRUE(idle.AtEnd());
  Release();
  EXPECT_EQ(running.ReadUntil("0\r\n\r\n"), "\r\n3\r\ntwo\r\n0\r\n\r\n");
  EXPECT_TRUE(running.AtEnd());
  EXPECT_TRUE(Eventually([&] { return stats().connections == 0; }));
  ServerOptions again;  // the port is free
  again.port = old_port;
  asio::io_context io;
  EXPECT_TRUE(Server::Listen(io, again).ok());
}

TEST(ServerListen, ErrorsNameTheAddress) {
  asio::io_context io;
  ServerOptions options;
  auto first = Server::Listen(io, options);
  ASSERT_TRUE(first.ok());
  options.port = (*first)->port();
  const auto taken = Server::Listen(io, options);
  ASSERT_FALSE(taken.ok());
  EXPECT_NE(
      taken.status().message().find(fmt::format("127.0.0.1:{}", options.port)),
      std::string::npos)
      << taken.status();
  options.host = "no-address";
  EXPECT_EQ(Server::Listen(io, options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace holdfast::http
