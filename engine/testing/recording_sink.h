// Keeps a request's events, for tests.
#ifndef HOLDFAST_ENGINE_TESTING_RECORDING_SINK_H_
#define HOLDFAST_ENGINE_TESTING_RECORDING_SINK_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/scheduler/request.h"

namespace holdfast::engine::testing {

class RecordingSink final : public EventSink {
 public:
  void OnRefused(const Refusal& refusal) override {
    std::lock_guard lock(mutex_);
    refusal_ = refusal;
    ended_.notify_all();
  }
  void OnProgress(int done, int) override {
    progress.push_back(done);
    if (after_progress) after_progress(done);
  }
  void OnStarted(const CacheReport& cache, const Timing&) override {
    started = cache;
    ++starts;
  }
  bool OnToken(const OutputToken& token) override {
    ids.push_back(token.id);
    tokens.push_back(token);
    return static_cast<int>(ids.size()) < accepts;
  }
  void OnFinished(const Result& result) override {
    std::lock_guard lock(mutex_);
    result_ = result;
    ended_.notify_all();
  }

  // False when neither end has come within the time that a test gives up.
  [[nodiscard]] bool WaitForEnd() {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, std::chrono::seconds(30),
                           [&] { return refusal_ || result_; });
  }
  bool ended() {
    std::lock_guard lock(mutex_);
    return refusal_ || result_;
  }
  // After the end.
  const std::optional<Refusal>& refusal() const { return refusal_; }
  const std::optional<Result>& result() const { return result_; }

  // The engine thread's until the end.
  std::vector<int> progress;
  std::optional<CacheReport> started;
  int starts = 0;
  std::vector<std::int32_t> ids;
  std::vector<OutputToken> tokens;
  std::function<void(int done)> after_progress;
  int accepts = 1 << 30;  // a token at which the sink says no

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<Refusal> refusal_;
  std::optional<Result> result_;
};

}  // namespace holdfast::engine::testing

#endif  // HOLDFAST_ENGINE_TESTING_RECORDING_SINK_H_
