// The HTTP/1.1 server: connections, limits and deadlines. It knows no endpoint.
#ifndef HOLDFAST_GATEWAY_HTTP_SERVER_H_
#define HOLDFAST_GATEWAY_HTTP_SERVER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/io_context.hpp"
#include "gateway/http/exchange.h"
#include "gateway/http/message.h"
#include "shared/deadlines.h"

namespace holdfast::http {

struct ServerLimits {
  std::uint64_t body_bytes = 64ull << 20;
  // Of the bodies of all requests that are read or answered, together: a
  // request over it is answered 503.
  std::uint64_t all_body_bytes = 256ull << 20;
  std::uint32_t header_bytes = 32u << 10;
  // A connection over this is answered 503 and closed.
  std::size_t connections = 1024;
  // Bytes of further requests that are read while one is answered.
  std::size_t pipeline_bytes = 64u << 10;
  std::chrono::milliseconds read = deadlines::kHttpRead;
  std::chrono::milliseconds write = deadlines::kHttpWrite;
  std::chrono::milliseconds idle = deadlines::kHttpIdle;
  std::chrono::milliseconds linger = deadlines::kHttpLinger;
};

// Counted on the io thread, read from any.
struct ServerStats {
  std::atomic<std::uint64_t> connections{0};  // open now
  std::atomic<std::uint64_t> accepted{0};
  std::atomic<std::uint64_t> refused{0};      // over limits.connections
  std::atomic<std::uint64_t> client_gone{0};  // closed before its answer ended
  std::atomic<std::uint64_t> read_timeouts{0};
  std::atomic<std::uint64_t> write_timeouts{0};
  std::atomic<std::uint64_t> bad_requests{0};  // not HTTP, or over a limit
};

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address, not a name
  std::uint16_t port = 0;          // 0: any free one
  ServerLimits limits;
  std::function<boost::asio::awaitable<void>(Exchange&)> handler;
  // The answer to what never reaches the handler: 400, 408, 413, 417, 431, 503.
  // Runs on the io thread.
  std::function<Response(int status, std::string_view message)> refusal;
};

class Connection;
struct ServerState;

// All methods on the io thread, or before the context runs. The context must
// outlive the server, and must not run any more when the server is destroyed.
class Server {
 public:
  // Binds and listens; connections are accepted once the context runs. An
  // error names address and port.
  static absl::StatusOr<std::unique_ptr<Server>> Listen(
      boost::asio::io_context& io, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;
  const ServerStats& stats() const;

  // Accepts no more; idle connections close, the others after the answer that
  // they are at.
  void Drain();
  // Closes every connection now; handlers see their clients go.
  void CloseAll();

 private:
  explicit Server(std::shared_ptr<ServerState> state);
  std::shared_ptr<ServerState> state_;
};

}  // namespace holdfast::http

#endif  // HOLDFAST_GATEWAY_HTTP_SERVER_H_
