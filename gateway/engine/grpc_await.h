// gRPC's callback calls as awaitables of the io thread.
#ifndef HOLDFAST_GATEWAY_ENGINE_GRPC_AWAIT_H_
#define HOLDFAST_GATEWAY_ENGINE_GRPC_AWAIT_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "boost/asio/any_io_executor.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/post.hpp"
#include "gateway/engine/signal.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/status.h"
#include "shared/grpc_status.h"

namespace holdfast::gateway {

// Counts calls that gRPC's threads still know of. Their callbacks post to the
// io context, which must not be destroyed before they have ended; and each
// keeps its channel alive: were it the last to do so, the channel would end on
// a thread of gRPC's own, which then waits for itself. Thread-safe.
class CallTracker {
 public:
  // Blocks; false when calls still exist at the deadline.
  bool WaitForNone(std::chrono::milliseconds deadline) {
    std::unique_lock lock(mutex_);
    return none_.wait_for(lock, deadline, [this] { return calls_ == 0; });
  }
  // No call begins from now on: one that began after the last had ended would
  // outlive the io context. On the io thread, as all that begins.
  void Close() { closed_ = true; }
  bool closed() const { return closed_; }

 private:
  friend class TrackedCall;
  std::mutex mutex_;
  std::condition_variable none_;
  std::size_t calls_ = 0;
  bool closed_ = false;  // io thread
};

// Counts for as long as it exists. The first member of what belongs to a call:
// it goes last.
class TrackedCall {
 public:
  explicit TrackedCall(std::shared_ptr<CallTracker> tracker)
      : tracker_(std::move(tracker)) {
    const std::lock_guard lock(tracker_->mutex_);
    ++tracker_->calls_;
  }
  ~TrackedCall() {
    const std::lock_guard lock(tracker_->mutex_);
    if (--tracker_->calls_ == 0) tracker_->none_.notify_all();
  }
  TrackedCall(const TrackedCall&) = delete;
  TrackedCall& operator=(const TrackedCall&) = delete;

 private:
  const std::shared_ptr<CallTracker> tracker_;
};

// One unary call. `start(context, request, response, done)` begins it with the
// stub's async() method. `what` names the call in errors.
template <typename Response, typename Request, typename Start>
boost::asio::awaitable<absl::StatusOr<Response>> AwaitUnary(
    boost::asio::any_io_executor executor, std::shared_ptr<CallTracker> tracker,
    std::string what, std::chrono::milliseconds deadline, Request request,
    Start start) {
  struct Call {
    Call(std::shared_ptr<CallTracker> t, boost::asio::any_io_executor ex)
        : tracked(std::move(t)), changed(std::move(ex)) {}
    TrackedCall tracked;
    grpc::ClientContext context;
    Request request;
    Response response;
    std::optional<grpc::Status> status;  // io thread
    Signal changed;
  };
  if (tracker->closed()) co_return absl::CancelledError(what + ": stopping");
  auto call = std::make_shared<Call>(std::move(tracker), executor);
  call->request = std::move(request);
  call->context.set_deadline(std::chrono::system_clock::now() + deadline);
  start(&call->context, &call->request, &call->response,
        [call, executor](grpc::Status status) {
          boost::asio::post(executor, [call, status] {
            call->status = status;
            call->changed.NotifyAll();
          });
        });
  while (!call->status.has_value()) {
    co_await call->changed.Wait(SteadyTime::max());  // gRPC keeps the deadline
  }
  if (!call->status->ok()) co_return FromGrpcStatus(*call->status, what);
  co_return std::move(call->response);
}

// A server-streaming call: gRPC's threads put at most kMaxQueued events into a
// queue and read no further until the io thread takes them, so HTTP/2 flow
// control holds the server back.
template <typename Event>
class StreamCall {
 public:
  static constexpr std::size_t kMaxQueued = 64;

  // `start(context, reactor)` begins the call with the stub's async() method.
  // Without a deadline the call lasts until either side ends it.
  template <typename Start>
  StreamCall(boost::asio::any_io_executor executor,
             std::shared_ptr<CallTracker> tracker, std::string what,
             std::optional<std::chrono::milliseconds> deadline, Start start)
      : what_(std::move(what)), cancelled_(tracker->closed()) {
    if (cancelled_) return;
    reactor_ = std::make_shared<Reactor>(executor, std::move(tracker));
    if (deadline.has_value()) {
      reactor_->context.set_deadline(std::chrono::system_clock::now() +
                                     *deadline);
    }
    start(&reactor_->context, reactor_.get());
    reactor_->Begin(reactor_);
  }
  // Cancels the call when it has not ended.
  ~StreamCall() {
    if (reactor_ != nullptr) reactor_->Abandon();
  }
  StreamCall(const StreamCall&) = delete;
  StreamCall& operator=(const StreamCall&) = delete;

  // The next event; nothing when none came before `until` (ask again). Errors:
  // OUT_OF_RANGE after the last event of a call that ended well, else why the
  // call ended; CANCELLED after Cancel.
  boost::asio::awaitable<absl::StatusOr<std::optional<Event>>> Next(
      SteadyTime until) {
    while (true) {
      if (cancelled_) co_return absl::CancelledError(what_ + ": cancelled");
      std::optional<grpc::Status> ended;
      std::optional<Event> event = reactor_->Take(&ended);
      if (event.has_value()) co_return event;
      if (ended.has_value()) {
        if (!ended->ok()) co_return FromGrpcStatus(*ended, what_);
        co_return absl::OutOfRangeError(what_ + ": no more events");
      }
      if (std::chrono::steady_clock::now() >= until) co_return std::nullopt;
      co_await reactor_->changed.Wait(until);
    }
  }

  // Wakes a waiting Next.
  void Cancel() {
    cancelled_ = true;
    if (reactor_ == nullptr) return;
    reactor_->context.TryCancel();
    reactor_->changed.NotifyAll();
  }

 private:
  class Reactor final : public grpc::ClientReadReactor<Event>,
                        public std::enable_shared_from_this<Reactor> {
    const TrackedCall tracked_;

   public:
    Reactor(boost::asio::any_io_executor ex, std::shared_ptr<CallTracker> t)
        : tracked_(std::move(t)), changed(ex), executor_(std::move(ex)) {}

    void Begin(std::shared_ptr<Reactor> self) {
      self_ = std::move(self);
      // Take starts reads outside of gRPC's reactions: the hold keeps the call
      // from ending in between.
      this->AddHold();
      reading_ = true;
      this->StartRead(&incoming_);
      this->StartCall();
    }

    std::optional<Event> Take(std::optional<grpc::Status>* ended) {
      std::optional<Event> event;
      bool start_read = false;
      {
        const std::lock_guard lock(mutex_);
        if (queue_.empty()) {
          *ended = status_;
          return std::nullopt;
        }
        event = std::move(queue_.front());
        queue_.pop_front();
        start_read = holding_ && !reading_;
        if (start_read) reading_ = true;
      }
      if (start_read) this->StartRead(&incoming_);
      return event;
    }

    void Abandon() {
      context.TryCancel();
      bool release = false;
      {
        const std::lock_guard lock(mutex_);
        abandoned_ = true;
        release = holding_ && !reading_;  // else OnReadDone releases
        if (release) holding_ = false;
      }
      if (release) this->RemoveHold();
    }

    void OnReadDone(bool ok) override {
      const std::shared_ptr<Reactor> keep = self_;
      bool start_read = false;
      bool release = false;
      {
        const std::lock_guard lock(mutex_);
        reading_ = false;
        if (ok && !abandoned_) {
          queue_.push_back(std::move(incoming_));
          incoming_ = Event();
          start_read = queue_.size() < kMaxQueued;
          reading_ = start_read;
        } else {
          release = std::exchange(holding_, false);
        }
      }
      if (start_read) this->StartRead(&incoming_);
      if (ok) Wake();
      if (release) this->RemoveHold();
    }

    void OnDone(const grpc::Status& status) override {
      const std::shared_ptr<Reactor> keep = std::move(self_);
      {
        const std::lock_guard lock(mutex_);
        status_ = status;
      }
      Wake();
    }

    grpc::ClientContext context;
    Signal changed;  // io thread

   private:
    void Wake() {
      boost::asio::post(executor_, [keep = this->shared_from_this()] {
        keep->changed.NotifyAll();
      });
    }

    boost::asio::any_io_executor executor_;
    std::shared_ptr<Reactor> self_;  // until OnDone: gRPC has a bare pointer
    Event incoming_;

    std::mutex mutex_;  // guards what follows
    std::deque<Event> queue_;
    bool reading_ = false;  // a read is under way
    bool holding_ = true;
    bool abandoned_ = false;
    std::optional<grpc::Status> status_;
  };

  std::shared_ptr<Reactor> reactor_;  // null: the tracker was closed
  const std::string what_;
  bool cancelled_;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_ENGINE_GRPC_AWAIT_H_
