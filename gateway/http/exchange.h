// One request and the answer to it, as a handler sees them.
#ifndef HOLDFAST_GATEWAY_HTTP_EXCHANGE_H_
#define HOLDFAST_GATEWAY_HTTP_EXCHANGE_H_

#include <functional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "boost/asio/awaitable.hpp"
#include "gateway/http/message.h"

namespace holdfast::http {

// A handler answers each exchange once: with Reply, or with BeginStream, any
// number of Write, and EndStream. It runs on the io thread and must not block
// there. An exchange belongs to its connection and ends with the handler.
//
// While the handler runs the connection keeps reading, so a client that closes
// (half-closing counts) is noticed at once, whatever the handler waits for.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // The handler may move the body out.
  virtual Request& request() = 0;

  // The client has closed, or was dropped for taking no bytes. Writes fail
  // from then on.
  virtual bool gone() const = 0;
  // Called once, on the io thread, when the client goes; at once when it is
  // gone already. Replaces the earlier callback; an empty one removes it. The
  // callback must not start or end the exchange's writes.
  virtual void OnGone(std::function<void()> callback) = 0;

  // CANCELLED when the client is gone, DEADLINE_EXCEEDED when it takes nothing
  // (it is dropped then). Nothing can be written afterwards.
  virtual boost::asio::awaitable<absl::Status> Reply(Response response) = 0;
  // Sends the head (status and headers; `head.body` is ignored) at once.
  virtual boost::asio::awaitable<absl::Status> BeginStream(Response head) = 0;
  // Sends `piece` at once; it must stay valid until the call returns.
  virtual boost::asio::awaitable<absl::Status> Write(
      std::string_view piece) = 0;
  virtual boost::asio::awaitable<absl::Status> EndStream() = 0;

  // The status that was sent; 0 before.
  virtual int status() const = 0;
};

// Sets OnGone for a scope, so that a callback never outlives what it uses.
class OnGoneScope {
 public:
  OnGoneScope(Exchange& exchange, std::function<void()> callback)
      : exchange_(exchange) {
    exchange_.OnGone(std::move(callback));
  }
  ~OnGoneScope() { exchange_.OnGone(nullptr); }
  OnGoneScope(const OnGoneScope&) = delete;
  OnGoneScope& operator=(const OnGoneScope&) = delete;

 private:
  Exchange& exchange_;
};

}  // namespace holdfast::http

#endif  // HOLDFAST_GATEWAY_HTTP_EXCHANGE_H_
