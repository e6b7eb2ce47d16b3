#include "gateway/http/server.h"

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
      "GET / HTTP/1.1\r\nhost: a\r\nno colon here\r\n\r\n",
      "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
      "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: "
      "2\r\n\r\n",
      "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: "
      "chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: "
      "chunked\r\n\r\nzz\r\n\r\n",
      "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
      "GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
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

// What follows is the body, not a request of its own.
TEST_F(ServerTest, ABodyInAnUnknownCodingIsNoNextRequest) {
  Start();
  for (const std::string coding :
       {"gzip", "xchunked", "gzip, chunked", "chunked, identity"}) {
    RawClient client(port());
    client.Send("POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: " +
                coding + "\r\n\r\nGET /echo HTTP/1.1\r\nhost: a\r\n\r\n");
    EXPECT_EQ(client.ReadResponse().status, 400) << coding;
    EXPECT_TRUE(client.AtEnd()) << coding;
  }
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
}  // namespace holdfast::http::testing
