// Wakes coroutines that wait for a change of something.
#ifndef HOLDFAST_GATEWAY_ENGINE_SIGNAL_H_
#define HOLDFAST_GATEWAY_ENGINE_SIGNAL_H_

#include <chrono>
#include <utility>
#include <vector>

#include "boost/asio/any_io_executor.hpp"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/use_awaitable.hpp"

namespace holdfast::gateway {

using SteadyTime = std::chrono::steady_clock::time_point;

// On the io thread only, so a waiter that looks at the state and then waits
// misses no NotifyAll: nothing runs in between. It remembers nothing: who waits
// afterwards looks first. Must outlive its waiters.
class Signal {
 public:
  explicit Signal(boost::asio::any_io_executor executor)
      : executor_(std::move(executor)) {}

  void NotifyAll() {
    for (boost::asio::steady_timer* timer : std::exchange(waiting_, {}))
      timer->cancel();
  }

  // Returns after a NotifyAll, or at `until`.
  boost::asio::awaitable<void> Wait(SteadyTime until) {
    boost::asio::steady_timer timer(executor_, until);
    waiting_.push_back(&timer);
    (void)co_await timer.async_wait(
        boost::asio::as_tuple(boost::asio::use_awaitable));
    std::erase(waiting_, &timer);
  }

 private:
  boost::asio::any_io_executor executor_;
  std::vector<boost::asio::steady_timer*> waiting_;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_ENGINE_SIGNAL_H_
