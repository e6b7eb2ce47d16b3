#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/response/response_recorder.h"
#include "engine/scheduler/read_back.h"
#include "engine/scheduler/session_spill.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace holdfast::engine {
namespace {

// The idle thread looks up this often, to show that it lives and to see a drain
// deadline or another's pass.
constexpr std::chrono::milliseconds kIdle{500};
constexpr int kMinRetryMs = 1000;
constexpr int kMaxRetryMs = 60000;

Result CancelledInQueue(const Job& job) {
  Result result;
  result.reason = FinishReason::kCancelled;
  result.prompt_tokens = static_cast<int>(job.request.prompt.size());
  return result;
}

// Clients choose it: as much as helps to find a line, and quoted, so that none
// can write a line of its own.
std::string ForLog(const std::string& text) {
  constexpr std::size_t kMax = 64;
  return fmt::format("{:?}", text.substr(0, kMax));
}

}  // namespace

Scheduler::Scheduler(std::unique_ptr<EngineState> state, const Options& options)
    : state_(std::move(state)),
      records_(state_->records),
      bell_(state_->bell),
      options_(options),
      limits_{.vocab_size = state_->model.info().vocab_size,
              .max_context = state_->options.max_context,
              .debug = options.debug,
              .fingerprint = state_->options.fingerprint},
      loop_(*state_, *this, SteadyClock()),
      stats_line_(Clock::now()),
      cache_gauges_(CacheGauges(*state_)),
      thread_([this] { ThreadMain(); }) {}

Scheduler::~Scheduler() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    draining_ = true;
    drain_deadline_ = Clock::time_point::min();
  }
  bell_->Ring();
  thread_.join();
}

void Scheduler::Submit(std::shared_ptr<Job> job) {
  auto refusal = CheckRequest(job->request, limits_);
  if (!refusal) {
    std::lock_guard lock(mutex_);
    const int waiting = queue_.size() + loop_counts_.waiting;
    if (draining_) {
      refusal = Refusal{.reason = Refusal::Reason::kDraining,
                        .message = "the engine is stopping"};
    } else if (waiting >= options_.max_queue &&
               (loop_counts_.running > 0 || waiting > 0)) {
      const auto seats = static_cast<double>(state_->options.seats);
      const double wait_ms = 1000 * request_seconds_ * (waiting + 1) / seats;
      refusal = Refusal{
          .reason = Refusal::Reason::kQueueFull,
          .message = fmt::format("{} requests are waiting already", waiting),
          .retry_after_ms = static_cast<int>(
              std::clamp<double>(wait_ms, kMinRetryMs, kMaxRetryMs))};
    } else {
      queue_.Push(std::move(job));
    }
  }
  if (refusal) return Deliver(*job, *refusal);
  bell_->Ring();
}

void Scheduler::Replay(const Job& job, const Response& response) {
  if (draining()) {
    return Deliver(job, Refusal{.reason = Refusal::Reason::kDraining,
                                .message = "the engine is stopping"});
  }
  Deliver(job, SendResponse(response, *job.sink));
}

void Scheduler::Cancel(const std::shared_ptr<Job>& job) {
  job->cancelled = true;
  bool waited = false;
  {
    std::lock_guard lock(mutex_);
    waited = queue_.Remove(job);
  }
  if (waited) Deliver(*job, CancelledInQueue(*job));
  bell_->Ring();
}

void Scheduler::Drain(std::chrono::milliseconds requests,
                      std::chrono::milliseconds spill,
                      std::function<void(DrainResult)> done) {
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
    const auto end = Clock::now() + requests;
    drain_deadline_ = std::min(drain_deadline_, end);
    spill_deadline_ = std::min(spill_deadline_, end + spill);
    drain_waiters_.push_back(std::move(done));
  }
  bell_->Ring();
}

void Scheduler::ClearCache(std::function<void(int)> done) {
  {
    std::lock_guard lock(mutex_);
    clear_waiters_.push_back(std::move(done));
  }
  bell_->Ring();
}

void Scheduler::SaveSession(std::string session_key,
                            std::function<void(const SavedSession&)> done) {
  {
    std::lock_guard lock(mutex_);
    save_waiters_.push_back({std::move(session_key), std::move(done)});
  }
  bell_->Ring();
}

void Scheduler::AnswerSaves(std::unique_lock<std::mutex>& lock) {
  auto waiters = std::exchange(save_waiters_, {});
  lock.unlock();
  for (SaveWaiter& waiter : waiters) {
    engine::SaveSession(*state_, waiter.session_key, std::move(waiter.done));
  }
  lock.lock();
}

void Scheduler::AnswerClears(std::unique_lock<std::mutex>& lock) {
  const auto waiters = std::exchange(clear_waiters_, {});
  lock.unlock();
  const int blocks = state_->Clear();
  const EngineGauges gauges = CacheGauges(*state_);
  spdlog::info("cache cleared blocks={}", blocks);
  for (const auto& done : waiters) done(blocks);
  lock.lock();
  cache_gauges_ = gauges;
}

EngineGauges Scheduler::gauges() const {
  std::lock_guard lock(mutex_);
  EngineGauges gauges = cache_gauges_;
  gauges.running = loop_counts_.running;
  gauges.waiting = queue_.size() + loop_counts_.waiting;
  gauges.preemptions = loop_counts_.preemptions;
  gauges.in_flight_waits = loop_counts_.waits;
  gauges.late_owners = loop_counts_.late_owners;
  gauges.generated_tokens = state_->generated.load();
  gauges.prefill_tokens = state_->prefilled.load();
  return gauges;
}

EngineGauges Scheduler::CacheGauges(const EngineState& state) {
  const BlockPool::Counts pool = state.pool.counts();
  EngineGauges gauges;
  gauges.free_blocks = pool.free;
  gauges.used_blocks = pool.used;
  gauges.cached_blocks = pool.cached;
  gauges.evictions = pool.evictions;
  gauges.eviction_ages = pool.ages;
  gauges.anchors = state.anchor_slots.live();
  for (int kind = 0; kind < kAnchorKinds; ++kind) {
    gauges.anchors_taken[kind] =
        state.anchor_slots.taken(static_cast<AnchorKind>(kind));
  }
  const Retained::Counters& kept = state.retained.counters();
  gauges.anchors_dropped_budget =
      state.anchors_dropped.budget + kept.anchors_thinned;
  gauges.anchors_dropped_rows = state.anchors_dropped.rows + kept.anchors_cut;
  gauges.retention.kept = static_cast<int>(state.retained.all().size());
  gauges.retention.displaced = kept.displaced;
  gauges.retention.guests = kept.guests;
  gauges.retention.guest_overflows = state.guest_overflows;
  for (std::size_t c = 0; c < kRetentionClasses; ++c) {
    const auto of = static_cast<RetentionClass>(c);
    gauges.retention.blocks[c] = state.pool.held(of);
    gauges.retention.anchors[c] = state.anchor_slots.live(of);
    gauges.retention.blocks_cut[c] = kept.blocks_cut[c];
  }
  if (state.tiering != nullptr) {
    gauges.tiers = state.tiering->counters;
    gauges.leases = state.tiering->leases.live();
    gauges.leases_revoked = state.tiering->leases.revoked();
  }
  return gauges;
}

bool Scheduler::draining() const {
  std::lock_guard lock(mutex_);
  return draining_;
}

bool Scheduler::DeadlinePassed() const {
  return draining_ && Clock::now() >= drain_deadline_;
}

void Scheduler::ThreadMain() {
  while (HaveWork()) {
    const std::uint64_t rings = bell_->rings();
    loop_.Admit();
    PublishGauges();
    const bool moved = loop_.Step();
    PublishGauges();
    LogStats();
    if (!moved && !loop_.idle()) bell_->Wait(rings, kIdle);
  }
}

bool Scheduler::HaveWork() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++progress_;
    const std::uint64_t rings = bell_->rings();
    if (!read_back_ && state_->tiering != nullptr &&
        state_->tiering->tiers.attached()) {
      ReadBack(lock);
      continue;
    }
    if (!save_waiters_.empty()) {
      AnswerSaves(lock);
      continue;
    }
    if (!clear_waiters_.empty()) {
      AnswerClears(lock);
      continue;
    }
    if (queue_.size() > 0 || !loop_.idle()) return true;
    if (!drain_waiters_.empty()) {
      AnswerDrains(lock);
      continue;
    }
    if (stopping_) return false;
    Idle(lock, rings);
  }
}

std::shared_ptr<Job> Scheduler::NextJob() {
  std::lock_guard lock(mutex_);
  // Nobody to read from was there in time; lookups find what is kept.
  read_back_ = true;
  std::shared_ptr<Job> job = queue_.Pop();
  // At once: nobody may see it neither waiting nor running.
  if (job != nullptr) ++loop_counts_.waiting;
  return job;
}

void Scheduler::ReadBack(std::unique_lock<std::mutex>& lock) {
  read_back_ = true;
  lock.unlock();
  ReadBackResidents(*state_, [this] {
    ++progress_;
    const std::lock_guard guard(mutex_);
    return draining_;
  });
  const EngineGauges gauges = CacheGauges(*state_);
  lock.lock();
  cache_gauges_ = gauges;
}

void Scheduler::Idle(std::unique_lock<std::mutex>& lock, std::uint64_t rings) {
  lock.unlock();
  bell_->Wait(rings, kIdle);
  lock.lock();
  if (state_->tiering == nullptr || queue_.size() > 0) return;
  lock.unlock();
  const auto now = Clock::now();
  state_->tiering->leases.Collect(now);
  state_->tiering->waiting.Retry(*state_->tiering, now);
  const EngineGauges gauges = CacheGauges(*state_);
  lock.lock();
  cache_gauges_ = gauges;
}

void Scheduler::AnswerDrains(std::unique_lock<std::mutex>& lock) {
  if (!std::exchange(spilled_, true)) {
    lock.unlock();
    SpillConversations(*state_, [this] {
      ++progress_;
      const std::lock_guard guard(mutex_);
      return spill_deadline_;
    });
    lock.lock();
  }
  const auto waiters = std::exchange(drain_waiters_, {});
  const DrainResult result = drained_;
  lock.unlock();
  for (const auto& done : waiters) done(result);
  lock.lock();
}

bool Scheduler::MustStop(const Job& job) {
  ++progress_;
  if (job.cancelled) return true;
  std::lock_guard lock(mutex_);
  return DeadlinePassed();
}

void Scheduler::PublishGauges() {
  EngineGauges gauges = CacheGauges(*state_);
  std::lock_guard lock(mutex_);
  cache_gauges_ = std::move(gauges);
  loop_counts_ = loop_.counts();
}

void Scheduler::LogStats() {
  const auto now = Clock::now();
  if (!stats_line_.Due(now)) return;
  EngineGauges all = gauges();
  all.recent_hit_rate = totals().recent.rate();
  const auto line = stats_line_.Next(all, now);
  if (line) spdlog::info("{}", *line);
}

void Scheduler::Finished(const Job& job, const Result& result, double seconds) {
  PublishGauges();
  {
    std::lock_guard lock(mutex_);
    request_seconds_ = 0.75 * request_seconds_ + 0.25 * seconds;
    if (draining_) {
      ++(result.reason == FinishReason::kCancelled ? drained_.cancelled
                                                   : drained_.finished);
    }
  }
  Deliver(job, result);
}

void Scheduler::Refused(const Job& job, const Refusal& refusal) {
  PublishGauges();
  Deliver(job, refusal);
}

void Scheduler::Deliver(const Job& job, const Refusal& refusal) {
  metrics_.Refused(refusal);
  spdlog::info("request refused id={} reason={} message=\"{}\"",
               ForLog(job.request.id), RefusalName(refusal.reason),
               refusal.message);
  job.sink->OnRefused(refusal);
}

void Scheduler::Deliver(const Job& job, const Result& result) {
  metrics_.Finished(result);
  const CacheReport& cache = result.cache;
  spdlog::info(
      "request done id={} session={} prompt_tokens={} source={} anchor={} "
      "resumed_at={} computed={} miss={} anchors_taken={} output_tokens={} "
      "finish={} preemptions={} recomputed={} chosen_by_backend={} "
      "queue_ms={:.1f} "
      "prefill_ms={:.1f} decode_ms={:.1f}{}{}",
      ForLog(job.request.id), ForLog(job.request.session_key),
      result.prompt_tokens, CacheSourceName(cache.source),
      cache.anchor ? AnchorKindName(*cache.anchor) : "", cache.resumed_at,
      cache.computed, MissReasonName(cache.miss), cache.anchors_taken,
      result.output_tokens, FinishReasonName(result.reason), result.preemptions,
      result.recomputed, result.chosen_by_backend, result.timing.queue_ms,
      result.timing.prefill_ms, result.timing.decode_ms,
      result.error.empty() ? "" : " error=", result.error);
  job.sink->OnFinished(result);
}

}  // namespace holdfast::engine
