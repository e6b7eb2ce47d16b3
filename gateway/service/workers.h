// Work that takes long (templates, tokenization, large JSON) on threads of its
// own, so that the io thread never waits for it.
#ifndef HOLDFAST_GATEWAY_SERVICE_WORKERS_H_
#define HOLDFAST_GATEWAY_SERVICE_WORKERS_H_

#include <atomic>
#include <optional>
#include <type_traits>
#include <utility>

#include "boost/asio/awaitable.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/thread_pool.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "gateway/http/exchange.h"

namespace holdfast::gateway {

// Whether an exchange's client has gone, for work on another thread. For a
// scope in which nothing else sets the exchange's OnGone.
class GoneFlag {
 public:
  explicit GoneFlag(http::Exchange& exchange)
      : scope_(exchange, [this] { gone_ = true; }) {}
  const std::atomic<bool>& gone() const { return gone_; }

 private:
  std::atomic<bool> gone_{false};
  const http::OnGoneScope scope_;
};

// Runs `work` on the pool; the caller goes on, on its own executor, with what
// it returned or threw. A connection has at most one work at a time, so the
// queue is bounded by the connections. Join the pool before the caller's
// context is destroyed.
template <typename Work>
boost::asio::awaitable<std::invoke_result_t<Work>> OnWorker(
    boost::asio::thread_pool& pool, Work work) {
  // Results need not be default-constructible, which co_spawn asks for.
  std::optional<std::invoke_result_t<Work>> result;
  co_await boost::asio::co_spawn(
      pool.get_executor(),
      [&result, &work]() -> boost::asio::awaitable<void> {
        result.emplace(work());
        co_return;
      },
      boost::asio::use_awaitable);
  co_return std::move(*result);
}

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_SERVICE_WORKERS_H_
