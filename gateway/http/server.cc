#include "gateway/http/server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "fmt/format.h"
#include "gateway/http/connection.h"
#include "spdlog/spdlog.h"

namespace holdfast::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);
// Accepting failed (out of descriptors): the next try waits this long.
constexpr std::chrono::milliseconds kAcceptRetry{100};
// Connections over the limit that are answered; further ones are just closed.
constexpr std::size_t kMaxRefusing = 64;

asio::awaitable<void> RunConnection(std::shared_ptr<Connection> connection) {
  try {
    co_await connection->Run();
  } catch (const std::exception& error) {
    spdlog::error("connection: unexpected exception: {}", error.what());
  }
}

asio::awaitable<void> RefuseConnection(std::shared_ptr<ServerState> state,
                                       std::shared_ptr<Connection> connection) {
  ++state->refusing;
  try {
    co_await connection->RefuseConnection();
  } catch (const std::exception& error) {
    spdlog::error("connection: unexpected exception: {}", error.what());
  }
  --state->refusing;
}

void Take(const std::shared_ptr<ServerState>& state, tcp::socket socket) {
  ++state->stats.accepted;
  const std::size_t serving = state->connections.size() - state->refusing;
  if (serving < state->options.limits.connections) {
    auto connection = std::make_shared<Connection>(state, std::move(socket));
    asio::co_spawn(state->io, RunConnection(std::move(connection)),
                   asio::detached);
    return;
  }
  ++state->stats.refused;
  if (state->refusing >= kMaxRefusing) return;
  auto connection = std::make_shared<Connection>(state, std::move(socket));
  asio::co_spawn(state->io, RefuseConnection(state, std::move(connection)),
                 asio::detached);
}

asio::awaitable<void> AcceptLoop(std::shared_ptr<ServerState> state) {
  asio::steady_timer pause(state->io);
  while (!state->draining) {
    auto [error, socket] = co_await state->acceptor.async_accept(kToken);
    if (state->draining) co_return;
    if (!error) {
      Take(state, std::move(socket));
      continue;
    }
    spdlog::warn("accept: {}", error.message());
    pause.expires_after(kAcceptRetry);
    co_await pause.async_wait(kToken);
  }
}

absl::Status Bind(tcp::acceptor& acceptor, const ServerOptions& options) {
  error_code error;
  const auto address = asio::ip::make_address(options.host, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--host ", options.host, ": not an IP address"));
  }
  const tcp::endpoint endpoint(address, options.port);
  const auto failed = [&](const char* what) {
    return absl::ErrnoToStatus(
        error.value(),
        fmt::format("{} {}:{}", what, options.host, options.port));
  };
  if (acceptor.open(endpoint.protocol(), error)) return failed("open socket");
  if (acceptor.set_option(tcp::acceptor::reuse_address(true), error))
    return failed("set SO_REUSEADDR on");
  if (acceptor.bind(endpoint, error)) return failed("listen on");
  if (acceptor.listen(asio::socket_base::max_listen_connections, error))
    return failed("listen on");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Listen(asio::io_context& io,
                                                       ServerOptions options) {
  auto state = std::make_shared<ServerState>(io, std::move(options));
  const absl::Status bound = Bind(state->acceptor, state->options);
  if (!bound.ok()) return bound;
  asio::co_spawn(io, AcceptLoop(state), asio::detached);
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

Server::Server(std::shared_ptr<ServerState> state) : state_(std::move(state)) {}

Server::~Server() = default;

std::uint16_t Server::port() const {
  error_code ignored;
  return state_->acceptor.local_endpoint(ignored).port();
}

const ServerStats& Server::stats() const { return state_->stats; }

void Server::Drain() {
  state_->draining = true;
  error_code ignored;
  state_->acceptor.close(ignored);
  for (Connection* connection : state_->connections)
    connection->CloseWhenIdle();
}

void Server::CloseAll() {
  Drain();
  const std::vector<Connection*> connections = state_->connections;
  for (Connection* connection : connections) connection->CloseNow();
}

}  // namespace holdfast::http
