// The engine thread and its queue.
#ifndef HOLDFAST_ENGINE_SCHEDULER_SCHEDULER_H_
#define HOLDFAST_ENGINE_SCHEDULER_SCHEDULER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/metrics/engine_metrics.h"
#include "engine/metrics/stats_line.h"
#include "engine/response/response_cache.h"
#include "engine/scheduler/admission.h"
#include "engine/scheduler/engine_state.h"
#include "engine/scheduler/fair_queue.h"
#include "engine/scheduler/request.h"
#include "engine/scheduler/run_loop.h"
#include "engine/scheduler/session_spill.h"

namespace holdfast::engine {

// Runs as many requests at once as there are seats (RunLoop), in the order of
// the FairQueue, on a thread of its own that alone touches the EngineState. All
// methods are thread-safe and none waits for a request.
class Scheduler final : private RunLoop::Host {
 public:
  struct Options {
    int max_queue = 64;  // requests that wait for a seat
    bool debug = false;
  };
  struct DrainResult {
    int finished = 0;   // ended by themselves
    int cancelled = 0;  // cut at the deadline
  };

  Scheduler(std::unique_ptr<EngineState> state, const Options& options);
  // Cancels what runs and waits; every request has had its last event then.
  ~Scheduler() override;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues the job, or answers OnRefused at once.
  void Submit(std::shared_ptr<Job> job);
  // Answers a job with what an identical one got: no queue, no seat. Its last
  // event has come when this returns.
  void Replay(const Job& job, const Response& response);
  // A waiting job ends at once and touches no other; a running one at its next
  // step. Both end with OnFinished(kCancelled), a job that has ended
  // already gets nothing.
  void Cancel(const std::shared_ptr<Job>& job);
  // Refuses new requests from now on; cancels those still there when `requests`
  // has passed. When nothing runs and nothing waits, conversations are stored,
  // until `spill` more has passed. Of several calls the earliest holds for
  // either, also under way. Then `done` is called once, from the engine thread
  // or in place.
  void Drain(std::chrono::milliseconds requests,
             std::chrono::milliseconds spill,
             std::function<void(DrainResult)> done);

  // Forgets what the pool has cached, before the next request. `done` gets the
  // number of blocks freed; it is called once, from the engine thread.
  void ClearCache(std::function<void(int)> done);

  // SaveSession() of session_spill.h, at the next step.
  void SaveSession(std::string session_key,
                   std::function<void(const SavedSession&)> done);

  const std::shared_ptr<SessionRecords>& records() const { return records_; }
  EngineGauges gauges() const;
  // What requests did since the start.
  RequestTotals::Values totals() const { return metrics_.totals().values(); }
  std::string MetricsText() { return metrics_.Text(gauges()); }
  bool draining() const;
  // Grows while the engine thread gets on, idle or working: a step that hangs
  // stops it.
  std::uint64_t progress() const { return progress_.load(); }

 private:
  using Clock = std::chrono::steady_clock;

  // RunLoop::Host
  std::shared_ptr<Job> NextJob() override;
  bool MustStop(const Job& job) override;
  void Finished(const Job& job, const Result& result, double seconds) override;
  void Refused(const Job& job, const Refusal& refusal) override;

  void ThreadMain();
  // Waits for something to run. False when the thread must end.
  bool HaveWork();
  void Deliver(const Job& job, const Refusal& refusal);
  void Deliver(const Job& job, const Result& result);
  // Makes what the engine thread counts known to others.
  void PublishGauges();
  void LogStats();
  void AnswerDrains(std::unique_lock<std::mutex>& lock);
  void AnswerClears(std::unique_lock<std::mutex>& lock);
  void AnswerSaves(std::unique_lock<std::mutex>& lock);
  // What was resident at the last planned stop.
  void ReadBack(std::unique_lock<std::mutex>& lock);
  // What the engine thread does while it has no request.
  void Idle(std::unique_lock<std::mutex>& lock, std::uint64_t rings);
  bool DeadlinePassed() const;  // needs mutex_
  // What EngineState counts. On the engine thread, or before it starts.
  static EngineGauges CacheGauges(const EngineState& state);

  const std::unique_ptr<EngineState> state_;       // the engine thread's
  const std::shared_ptr<SessionRecords> records_;  // the state's
  const std::shared_ptr<Doorbell> bell_;           // the state's
  const Options options_;
  const AdmissionLimits limits_;
  RunLoop loop_;          // the engine thread's
  StatsLine stats_line_;  // the engine thread's
  EngineMetrics metrics_;
  std::atomic<std::uint64_t> progress_{0};

  mutable std::mutex mutex_;  // guards everything below
  FairQueue queue_;
  RunLoop::Counts loop_counts_;
  bool stopping_ = false;
  bool draining_ = false;
  Clock::time_point drain_deadline_ = Clock::time_point::max();
  Clock::time_point spill_deadline_ = Clock::time_point::max();
  DrainResult drained_;
  std::vector<std::function<void(DrainResult)>> drain_waiters_;
  std::vector<std::function<void(int)>> clear_waiters_;
  struct SaveWaiter {
    std::string session_key;
    std::function<void(const SavedSession&)> done;
  };
  std::vector<SaveWaiter> save_waiters_;
  bool spilled_ = false;
  bool read_back_ = false;      // or it is too late for it
  EngineGauges cache_gauges_;   // what of them the engine thread counts
  double request_seconds_ = 1;  // moving average, for Retry-After

  std::thread thread_;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_SCHEDULER_H_
