// One client connection: reads requests, runs the handler, writes answers.
// Internal to the server.
#ifndef HOLDFAST_GATEWAY_HTTP_CONNECTION_H_
#define HOLDFAST_GATEWAY_HTTP_CONNECTION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/string_body.hpp"
#include "boost/system/error_code.hpp"
#include "gateway/http/exchange.h"
#include "gateway/http/message.h"
#include "gateway/http/server.h"

namespace holdfast::http {

// What connections share with their server. Outlives both: a coroutine that is
// destroyed with the context still holds it.
struct ServerState {
  ServerState(boost::asio::io_context& context, ServerOptions server_options)
      : io(context), acceptor(context), options(std::move(server_options)) {}
  boost::asio::io_context& io;
  boost::asio::ip::tcp::acceptor acceptor;
  ServerOptions options;
  ServerStats stats;
  bool draining = false;
  std::size_t refusing = 0;      // refused connections that are being closed
  std::uint64_t body_bytes = 0;  // held by all connections
  std::vector<Connection*> connections;
};

class Connection final : public Exchange,
                         public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerState> server,
             boost::asio::ip::tcp::socket socket);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Serves until the client goes or the connection must close.
  boost::asio::awaitable<void> Run();
  // Answers 503 and closes, whatever the client sends.
  boost::asio::awaitable<void> RefuseConnection();
  // Closes when no request is being answered, else after that answer.
  void CloseWhenIdle();
  void CloseNow();

  Request& request() override { return request_; }
  bool gone() const override { return gone_; }
  void OnGone(std::function<void()> callback) override;
  boost::asio::awaitable<absl::Status> Reply(Response response) override;
  boost::asio::awaitable<absl::Status> BeginStream(Response head) override;
  boost::asio::awaitable<absl::Status> Write(std::string_view piece) override;
  boost::asio::awaitable<absl::Status> EndStream() override;
  int status() const override { return status_; }

 private:
  enum class Progress { kNothing, kStreaming, kDone };

  // True when request_ holds the next request. False: the connection closes
  // (an answer that says why was written where there was something to answer).
  boost::asio::awaitable<bool> ReadRequest();
  boost::asio::awaitable<bool> WaitForFirstByte();
  boost::asio::awaitable<bool> RefuseRequest(boost::system::error_code error);
  // Answers and ends the connection: false.
  boost::asio::awaitable<bool> Refuse(int status, std::string message);
  boost::asio::awaitable<bool> AnswerExpect(std::string_view expect);
  using Parser =
      boost::beast::http::request_parser<boost::beast::http::string_body>;
  boost::asio::awaitable<bool> ReadBody(Parser& parser);
  // Counts so many bytes of this connection's body with those of all others.
  void HoldBody(std::uint64_t bytes);
  boost::asio::awaitable<void> Handle();
  boost::asio::awaitable<void> Linger();

  // The read that stays pending while the handler runs.
  void StartWatch();
  void WatchRead();
  void WatchFull();
  boost::asio::awaitable<void> StopWatch();
  void SetGone();

  std::string Head(const Response& response, std::string_view framing) const;
  boost::asio::awaitable<absl::Status> WriteAll(std::string_view bytes);
  // Cancels the socket's operations when it runs out.
  void ArmDeadline(std::chrono::milliseconds after);
  void DisarmDeadline();

  std::shared_ptr<ServerState> server_;
  boost::asio::ip::tcp::socket socket_;
  const bool from_loopback_;
  boost::beast::flat_buffer buffer_;
  Request request_;
  std::uint64_t body_bytes_ = 0;  // counted in server_->body_bytes
  bool keep_alive_ = false;
  bool http10_ = false;
  // The last request was not read to its end: closing at once would reset the
  // connection, and the client would lose the answer.
  bool unread_ = false;

  Progress progress_ = Progress::kNothing;
  int status_ = 0;
  bool busy_ = false;  // a request is being answered
  bool gone_ = false;
  std::function<void()> on_gone_;

  boost::asio::steady_timer deadline_;
  std::uint64_t deadline_round_ = 0;  // tells a late expiry from a new deadline
  bool timed_out_ = false;

  bool watching_ = false;
  bool stop_watch_ = false;
  boost::asio::steady_timer watch_timer_;    // full pipeline: looks again
  boost::asio::steady_timer watch_stopped_;  // StopWatch waits on it
};

}  // namespace holdfast::http

#endif  // HOLDFAST_GATEWAY_HTTP_CONNECTION_H_
