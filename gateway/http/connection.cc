#include "gateway/http/connection.h"

#include <poll.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/buffer.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/beast/http/error.hpp"
#include "boost/beast/http/read.hpp"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace holdfast::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kReadBytes = 4096;
// How often a connection whose pipeline is full is asked whether its client is
// still there; it is not read then.
constexpr std::chrono::milliseconds kFullPipelineCheck{200};
// Bytes read and dropped after the last answer, so that a client that is still
// sending sees the answer and not a reset.
constexpr std::size_t kLingerBytes = 64u << 20;

bool FromLoopback(const asio::ip::tcp::socket& socket) {
  boost::system::error_code error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return false;  // it has gone already
  const asio::ip::address& address = peer.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6())
        .is_loopback();
  }
  return address.is_loopback();
}

bool PeerClosed(int fd) {
  pollfd poll_fd{.fd = fd, .events = POLLRDHUP, .revents = 0};
  return poll(&poll_fd, 1, 0) > 0;
}

// As clients of a proxy write targets: http://host/path. What it names as the
// host counts, whatever the header says.
std::string_view TakeAuthority(std::string_view* target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target->size() < scheme.size() ||
        !EqualsIgnoreCase(target->substr(0, scheme.size()), scheme)) {
      continue;
    }
    const std::string_view rest = target->substr(scheme.size());
    const std::size_t end = std::min(rest.find_first_of("/?"), rest.size());
    *target = rest.substr(end);
    return rest.substr(0, end);
  }
  return {};
}

// HTTP/1.1 asks for one Host field, and for no second.
bool HasHost(const beast::http::request<beast::http::string_body>& message) {
  const auto hosts = message.count(beast::http::field::host);
  return hosts == 1 || (hosts == 0 && message.version() < 11);
}

// Where a body in another coding ends is not known: a proxy before us and we
// could take different bytes for the next request.
bool HasKnownCoding(
    const beast::http::request<beast::http::string_body>& message) {
  const auto field = beast::http::field::transfer_encoding;
  const auto coding = message.find(field);
  if (coding == message.end()) return true;
  return message.version() == 11 && message.count(field) == 1 &&
         EqualsIgnoreCase({coding->value().data(), coding->value().size()},
                          "chunked");
}

Request TakeRequest(beast::http::request<beast::http::string_body>& message) {
  Request request;
  request.method = std::string(message.method_string());
  std::string_view target(message.target().data(), message.target().size());
  const std::string_view authority = TakeAuthority(&target);
  const std::size_t question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos)
    request.query = std::string(target.substr(question + 1));
  if (request.path.empty()) request.path = "/";
  if (!authority.empty())
    request.headers.push_back({"host", std::string(authority)});
  for (const auto& field : message) {
    request.headers.push_back(
        {std::string(field.name_string()), std::string(field.value())});
  }
  request.body = std::move(message.body());
  return request;
}

}  // namespace

Connection::Connection(std::shared_ptr<ServerState> server,
                       asio::ip::tcp::socket socket)
    : server_(std::move(server)),
      socket_(std::move(socket)),
      from_loopback_(FromLoopback(socket_)),
      buffer_(server_->options.limits.header_bytes +
              server_->options.limits.pipeline_bytes + kReadBytes),
      deadline_(socket_.get_executor()),
      watch_timer_(socket_.get_executor()),
      watch_stopped_(socket_.get_executor()) {
  server_->connections.push_back(this);
  server_->stats.connections = server_->connections.size();
}

Connection::~Connection() {
  HoldBody(0);
  std::erase(server_->connections, this);
  server_->stats.connections = server_->connections.size();
}

asio::awaitable<void> Connection::Run() {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  do {
    const bool have_request = co_await ReadRequest();
    if (!have_request) break;
    co_await Handle();
  } while (keep_alive_ && !gone_ && !server_->draining);
  if (!gone_ && (unread_ || buffer_.size() > 0)) co_await Linger();
  DisarmDeadline();
  socket_.close(ignored);
}

asio::awaitable<void> Connection::RefuseConnection() {
  Response response = server_->options.refusal(503, "too many connections");
  request_ = Request();
  keep_alive_ = false;
  (void)co_await Reply(std::move(response));
  if (!gone_) co_await Linger();
  DisarmDeadline();
  error_code ignored;
  socket_.close(ignored);
}

asio::awaitable<bool> Connection::ReadRequest() {
  const ServerLimits& limits = server_->options.limits;
  progress_ = Progress::kNothing;
  status_ = 0;
  request_ = Request();
  HoldBody(0);
  const bool started = co_await WaitForFirstByte();
  if (!started) co_return false;

  busy_ = true;
  Parser parser;
  parser.header_limit(limits.header_bytes);
  parser.body_limit(limits.body_bytes);
  ArmDeadline(limits.read);
  auto [header_error, header_bytes] =
      co_await beast::http::async_read_header(socket_, buffer_, parser, kToken);
  DisarmDeadline();
  http10_ = header_error ? false : parser.get().version() < 11;
  keep_alive_ = !header_error && parser.get().keep_alive();
  if (header_error) co_return co_await RefuseRequest(header_error);
  if (!HasHost(parser.get())) {
    std::string why = "not an HTTP request: it must name one Host";
    co_return co_await Refuse(400, std::move(why));
  }
  if (!HasKnownCoding(parser.get())) {
    std::string why =
        "not an HTTP request: of Transfer-Encoding only chunked is known";
    co_return co_await Refuse(400, std::move(why));
  }

  const auto expect = parser.get().find(beast::http::field::expect);
  if (expect != parser.get().end() && !parser.is_done()) {
    const std::string wanted(expect->value());
    const bool go_on = co_await AnswerExpect(wanted);
    if (!go_on) co_return false;
  }
  const bool have_body = co_await ReadBody(parser);
  if (!have_body) co_return false;
  request_ = TakeRequest(parser.get());
  request_.from_loopback = from_loopback_;
  co_return true;
}

asio::awaitable<bool> Connection::ReadBody(Parser& parser) {
  const ServerLimits& limits = server_->options.limits;
  parser.eager(true);
  ArmDeadline(limits.read);
  while (!parser.is_done()) {
    auto [error, bytes] =
        co_await beast::http::async_read_some(socket_, buffer_, parser, kToken);
    if (error) {
      DisarmDeadline();
      co_return co_await RefuseRequest(error);
    }
    HoldBody(parser.get().body().size());
    if (server_->body_bytes <= limits.all_body_bytes) continue;
    DisarmDeadline();
    parser.get().body() = std::string();
    HoldBody(0);
    std::string why = fmt::format(
        "the bodies of all requests are larger than {} bytes together",
        limits.all_body_bytes);
    co_return co_await Refuse(503, std::move(why));
  }
  DisarmDeadline();
  co_return true;
}

void Connection::HoldBody(std::uint64_t bytes) {
  server_->body_bytes += bytes;
  server_->body_bytes -= body_bytes_;
  body_bytes_ = bytes;
}

asio::awaitable<bool> Connection::WaitForFirstByte() {
  busy_ = false;
  if (buffer_.size() > 0) co_return true;
  if (server_->draining) co_return false;
  ArmDeadline(server_->options.limits.idle);
  auto [error, bytes] =
      co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kToken);
  DisarmDeadline();
  buffer_.commit(bytes);
  co_return !error;
}

asio::awaitable<bool> Connection::RefuseRequest(error_code error) {
  keep_alive_ = false;
  unread_ = true;
  int status = 0;
  std::string message;
  if (timed_out_) {
    ++server_->stats.read_timeouts;
    status = 408;
    message = "the request did not arrive in time";
  } else if (error == beast::http::error::header_limit ||
             error == beast::http::error::buffer_overflow) {
    status = 431;
    message = fmt::format("the request's headers are larger than {} bytes",
                          server_->options.limits.header_bytes);
  } else if (error == beast::http::error::body_limit) {
    status = 413;
    message = fmt::format("the request's body is larger than {} bytes",
                          server_->options.limits.body_bytes);
  } else if (error == beast::http::error::end_of_stream ||
             error == beast::http::error::partial_message ||
             error.category() !=
                 beast::http::make_error_code(beast::http::error::bad_method)
                     .category()) {
    co_return false;  // the client left; nobody to answer
  } else {
    status = 400;
    message = "not an HTTP request: " + error.message();
  }
  co_return co_await Refuse(status, std::move(message));
}

asio::awaitable<bool> Connection::Refuse(int status, std::string message) {
  keep_alive_ = false;
  unread_ = true;
  ++server_->stats.bad_requests;
  Response response = server_->options.refusal(status, message);
  (void)co_await Reply(std::move(response));
  co_return false;
}

asio::awaitable<bool> Connection::AnswerExpect(std::string_view expect) {
  if (EqualsIgnoreCase(expect, "100-continue")) {
    const absl::Status status =
        co_await WriteAll("HTTP/1.1 100 Continue\r\n\r\n");
    co_return status.ok();
  }
  std::string why = "Expect: only 100-continue is known";
  co_return co_await Refuse(417, std::move(why));
}

asio::awaitable<void> Connection::Handle() {
  StartWatch();
  std::string failure;
  try {
    co_await server_->options.handler(*this);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (!failure.empty()) {
    spdlog::error("{} {}: unexpected exception: {}", request_.method,
                  request_.path, failure);
  }
  if (!gone_ && progress_ == Progress::kNothing) {
    Response response = server_->options.refusal(500, "internal error");
    (void)co_await Reply(std::move(response));
  }
  // A stream that was not ended must not look complete.
  if (progress_ != Progress::kDone) keep_alive_ = false;
  on_gone_ = nullptr;
  co_await StopWatch();
}

asio::awaitable<void> Connection::Linger() {
  error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  if (error) co_return;
  ArmDeadline(server_->options.limits.linger);
  std::size_t dropped = 0;
  buffer_.clear();
  while (dropped < kLingerBytes && !timed_out_) {
    auto [read_error, bytes] =
        co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kToken);
    if (read_error) break;
    dropped += bytes;
  }
  DisarmDeadline();
}

void Connection::CloseWhenIdle() {
  error_code ignored;
  if (!busy_) socket_.cancel(ignored);
}

void Connection::CloseNow() {
  SetGone();
  error_code ignored;
  socket_.close(ignored);
}

void Connection::OnGone(std::function<void()> callback) {
  on_gone_ = nullptr;
  if (gone_ && callback) {
    callback();
    return;
  }
  on_gone_ = std::move(callback);
}

void Connection::SetGone() {
  if (gone_) return;
  gone_ = true;
  if (busy_ && progress_ != Progress::kDone) ++server_->stats.client_gone;
  if (on_gone_) std::exchange(on_gone_, nullptr)();
}

void Connection::StartWatch() {
  watching_ = true;
  stop_watch_ = false;
  WatchRead();
}

void Connection::WatchRead() {
  if (stop_watch_ || gone_) {
    watching_ = false;
    watch_stopped_.cancel();
    return;
  }
  if (buffer_.size() >= server_->options.limits.pipeline_bytes) {
    WatchFull();
    return;
  }
  socket_.async_read_some(
      buffer_.prepare(kReadBytes),
      [self = shared_from_this()](error_code error, std::size_t bytes) {
        self->buffer_.commit(bytes);
        if (error && !self->stop_watch_) self->SetGone();
        self->WatchRead();
      });
}

void Connection::WatchFull() {
  watch_timer_.expires_after(kFullPipelineCheck);
  watch_timer_.async_wait([self = shared_from_this()](error_code) {
    if (!self->stop_watch_ && PeerClosed(self->socket_.native_handle()))
      self->SetGone();
    self->WatchRead();
  });
}

asio::awaitable<void> Connection::StopWatch() {
  stop_watch_ = true;
  if (!watching_) co_return;
  error_code ignored;
  socket_.cancel(ignored);
  watch_timer_.cancel();
  // WatchRead ends this wait. It runs on this thread, so not before the wait.
  watch_stopped_.expires_at(asio::steady_timer::time_point::max());
  (void)co_await watch_stopped_.async_wait(kToken);
}

std::string Connection::Head(const Response& response,
                             std::string_view framing) const {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status,
                                 ReasonPhrase(response.status));
  if (!response.content_type.empty())
    head += fmt::format("content-type: {}\r\n", response.content_type);
  for (const Header& header : response.headers)
    head += fmt::format("{}: {}\r\n", header.name, header.value);
  head += framing;
  if (!keep_alive_ || server_->draining) {
    head += "connection: close\r\n";
  } else if (http10_) {
    head += "connection: keep-alive\r\n";
  }
  head += "\r\n";
  return head;
}

asio::awaitable<absl::Status> Connection::Reply(Response response) {
  status_ = response.status;
  // An answer without content has no length either.
  std::string bytes = Head(response, response.status == 204
                                         ? ""
                                         : fmt::format("content-length: {}\r\n",
                                                       response.body.size()));
  if (request_.method != "HEAD") bytes += response.body;
  const absl::Status status = co_await WriteAll(bytes);
  if (status.ok()) progress_ = Progress::kDone;
  co_return status;
}

asio::awaitable<absl::Status> Connection::BeginStream(Response head) {
  status_ = head.status;
  progress_ = Progress::kStreaming;
  if (http10_) keep_alive_ = false;  // the end of the connection ends the body
  const std::string bytes =
      Head(head, http10_ ? "" : "transfer-encoding: chunked\r\n");
  co_return co_await WriteAll(bytes);
}

asio::awaitable<absl::Status> Connection::Write(std::string_view piece) {
  if (piece.empty()) co_return absl::OkStatus();  // would end a chunked body
  if (http10_) co_return co_await WriteAll(piece);
  std::string chunk = fmt::format("{:x}\r\n", piece.size());
  chunk += piece;
  chunk += "\r\n";
  co_return co_await WriteAll(chunk);
}

asio::awaitable<absl::Status> Connection::EndStream() {
  absl::Status status = absl::OkStatus();
  if (!http10_) status = co_await WriteAll("0\r\n\r\n");
  if (status.ok()) progress_ = Progress::kDone;
  co_return status;
}

asio::awaitable<absl::Status> Connection::WriteAll(std::string_view bytes) {
  while (!bytes.empty()) {
    if (gone_) co_return absl::CancelledError("the client has gone");
    ArmDeadline(server_->options.limits.write);
    auto [error, written] = co_await socket_.async_write_some(
        asio::buffer(bytes.data(), bytes.size()), kToken);
    DisarmDeadline();
    bytes.remove_prefix(written);
    if (!error) continue;
    const bool slow = timed_out_;
    if (slow) ++server_->stats.write_timeouts;
    CloseNow();
    if (slow)
      co_return absl::DeadlineExceededError("the client takes no bytes");
    co_return absl::CancelledError("the client has gone");
  }
  co_return absl::OkStatus();
}

void Connection::ArmDeadline(std::chrono::milliseconds after) {
  timed_out_ = false;
  const std::uint64_t round = ++deadline_round_;
  deadline_.expires_after(after);
  deadline_.async_wait([self = shared_from_this(), round](error_code error) {
    if (error || round != self->deadline_round_) return;
    self->timed_out_ = true;
    error_code ignored;
    self->socket_.cancel(ignored);
  });
}

void Connection::DisarmDeadline() {
  ++deadline_round_;
  deadline_.cancel();
}

}  // namespace holdfast::http
