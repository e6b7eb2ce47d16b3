// Clients that are slow, large or many.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "fmt/format.h"
#include "gateway/http/testing/raw_client.h"
#include "gateway/http/testing/server_fixture.h"
#include "gtest/gtest.h"

namespace holdfast::http::testing {
namespace {

using std::chrono::milliseconds;

class ServerLimitsTest : public ServerTest {};

TEST_F(ServerLimitsTest, DropsAClientThatTakesNothing) {
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

TEST_F(ServerLimitsTest, SlowRequestGets408) {
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

TEST_F(ServerLimitsTest, IdleConnectionsAreClosed) {
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

TEST_F(ServerLimitsTest, LargeBodyGets413) {
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

TEST_F(ServerLimitsTest, BodiesOverTheLimitTogetherGet503) {
  ServerLimits limits;
  limits.body_bytes = 1000;
  limits.all_body_bytes = 1500;
  Start(limits);
  RawClient first(port());
  first.SendRequest("POST", "/stream", std::string(1000, 'x'));
  first.ReadUntil("one");
  RawClient second(port());
  second.SendRequest("POST", "/echo", std::string(501, 'x'));
  EXPECT_EQ(second.ReadResponse().status, 503);
  EXPECT_TRUE(second.AtEnd());
  RawClient third(port());
  third.SendRequest("POST", "/echo", std::string(500, 'x'));
  EXPECT_EQ(third.ReadResponse().status, 200);
  // Answered requests count no more, whether their connection stays or not.
  Release();
  first.ReadUntil("0\r\n\r\n");
  first.Close();
  EXPECT_TRUE(Eventually([&] { return stats().connections == 1; }));
  RawClient fourth(port());
  fourth.SendRequest("POST", "/echo", std::string(1000, 'x'));
  EXPECT_EQ(fourth.ReadResponse().status, 200);
  RawClient fifth(port());
  fifth.SendRequest("POST", "/echo", std::string(1000, 'x'));
  EXPECT_EQ(fifth.ReadResponse().status, 200);
}

TEST_F(ServerLimitsTest, LargeHeadersGet431) {
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

TEST_F(ServerLimitsTest, ConnectionsOverTheLimitGet503) {
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

TEST_F(ServerLimitsTest, ManyIdleConnectionsHoldNothingUp) {
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

}  // namespace
}  // namespace holdfast::http::testing
