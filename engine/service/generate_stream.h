// A request's events on their way to its client.
#ifndef HOLDFAST_ENGINE_SERVICE_GENERATE_STREAM_H_
#define HOLDFAST_ENGINE_SERVICE_GENERATE_STREAM_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "engine/scheduler/request.h"
#include "grpcpp/support/server_callback.h"
#include "holdfast/v1/engine.pb.h"

namespace holdfast::engine {

using GenerateReactor = grpc::ServerWriteReactor<v1::GenerateEvent>;

// Takes events from the engine thread and writes them one at a time, without
// ever waiting: what the client has not taken yet is merged (tokens into one
// message, progress into the newest), up to a bound. Thread-safe.
class GenerateStream final : public EventSink {
 public:
  // What one client may leave unread before its request is ended.
  static constexpr std::size_t kMaxPendingBytes = 4 << 20;

  // The reactor of a new stream: owned by gRPC, ended by the last event.
  // `on_cancel` is called, on gRPC's thread, when the client has gone before.
  // `sink` gets the end that the engine writes to.
  static GenerateReactor* Open(std::function<void()> on_cancel,
                               const std::shared_ptr<GenerateStream>& sink);

  void OnRefused(const Refusal& refusal) override;
  void OnProgress(int done, int total) override;
  void OnStarted(const CacheReport& cache, const Timing& timing) override;
  [[nodiscard]] bool OnToken(const OutputToken& token) override;
  void OnFinished(const Result& result) override;

 private:
  class Reactor;

  void Push(v1::GenerateEvent event, bool last);
  void OnWriteDone(bool ok);
  // Starts the next write or the end. Takes the lock over; releases it.
  void Advance(std::unique_lock<std::mutex> lock);

  std::mutex mutex_;
  Reactor* reactor_ = nullptr;  // null once the end was asked for
  std::deque<v1::GenerateEvent> pending_;
  std::size_t pending_bytes_ = 0;  // of tokens
  v1::GenerateEvent current_;      // gRPC's while writing_
  bool writing_ = false;
  bool last_taken_ = false;  // the last event was pushed
  bool broken_ = false;      // a write failed: the client has gone
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SERVICE_GENERATE_STREAM_H_
