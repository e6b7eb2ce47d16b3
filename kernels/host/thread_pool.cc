#include "kernels/host/thread_pool.h"

#include <algorithm>
#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace holdfast::kernels {
namespace {

// Of Share::range: the number of the loop in the upper half, the next index,
// the end.
constexpr int kMostIndices = 0xffff;
constexpr int kNextShift = 16;
constexpr int kLoopShift = 32;

std::uint32_t LoopOf(std::uint64_t range) {
  return static_cast<std::uint32_t>(range >> kLoopShift);
}
int NextOf(std::uint64_t range) {
  return static_cast<int>(range >> kNextShift & kMostIndices);
}
int EndOf(std::uint64_t range) {
  return static_cast<int>(range & kMostIndices);
}

// Pauses before a thread sleeps. Between the products of a forward pass there
// are a few microseconds; a pause is tens of nanoseconds.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

#if defined(__x86_64__)
// MXCSR: all exceptions masked, round to nearest, neither FTZ nor DAZ.
DefinedFloatMode::DefinedFloatMode() : saved_(_mm_getcsr()) {
  _mm_setcsr(0x1f80);
}
DefinedFloatMode::~DefinedFloatMode() {
  _mm_setcsr(static_cast<unsigned>(saved_));
}
#elif defined(__aarch64__)
// FPCR zero: round to nearest, no flushing, no alternative half precision.
DefinedFloatMode::DefinedFloatMode() {
  asm volatile("mrs %0, fpcr" : "=r"(saved_));
  asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
}
DefinedFloatMode::~DefinedFloatMode() {
  asm volatile("msr fpcr, %0" : : "r"(saved_));
}
#else
DefinedFloatMode::DefinedFloatMode()
    : saved_(static_cast<std::uint64_t>(std::fegetround())) {
  std::fesetround(FE_TONEAREST);
}
DefinedFloatMode::~DefinedFloatMode() {
  std::fesetround(static_cast<int>(saved_));
}
#endif

ThreadPool::ThreadPool(int threads) : shares_(threads) {
  for (int thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { WorkerMain(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int count, int run, Task task, const void* body) {
  if (workers_.empty() || count <= 1) {
    for (int begin = 0; begin < count; begin += run) {
      task(body, begin, std::min(begin + run, count), 0);
    }
    return;
  }
  const std::int64_t most = std::int64_t{kMostIndices} * threads();
  for (std::int64_t first = 0; first < count; first += most) {
    RunPart(static_cast<int>(first),
            static_cast<int>(std::min<std::int64_t>(most, count - first)), run,
            task, body);
  }
}

void ThreadPool::RunPart(int first, int count, int run, Task task,
                         const void* body) {
  unfinished_.store(count, std::memory_order_relaxed);
  ++loop_;
  // The caller starts last, with the last indices, and at once: where shares
  // differ its own is the larger.
  const std::int64_t threads = this->threads();
  for (std::int64_t i = 0; i < threads; ++i) {
    const auto begin = static_cast<int>(count * i / threads);
    const auto end = static_cast<int>(count * (i + 1) / threads);
    Share& share = shares_[threads - 1 - i];
    share.first.store(first + begin, std::memory_order_relaxed);
    share.run.store(run, std::memory_order_relaxed);
    share.task = task;
    share.body = body;
    share.range.store(std::uint64_t{loop_} << kLoopShift |
                          static_cast<std::uint64_t>(end - begin),
                      std::memory_order_release);
  }
  // Either this sees that a worker goes to sleep, or that one sees the loop.
  if (asleep_.exchange(false)) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }

  TakeTasks(0);

  for (int spin = 0;; ++spin) {
    const int unfinished = unfinished_.load(std::memory_order_acquire);
    if (unfinished == 0) return;
    if (spin < kSpins) {
      Pause();
    } else {
      unfinished_.wait(unfinished, std::memory_order_acquire);
    }
  }
}

bool ThreadPool::TakeIndices(Share& share, int& begin, int& end) {
  std::uint64_t seen = share.range.load(std::memory_order_acquire);
  while (NextOf(seen) < EndOf(seen)) {
    const int first = share.first.load(std::memory_order_relaxed);
    const int run = share.run.load(std::memory_order_relaxed);
    begin = NextOf(seen);
    end = std::min(EndOf(seen), begin + run - (first + begin) % run);
    const std::uint64_t next =
        seen + (static_cast<std::uint64_t>(end - begin) << kNextShift);
    if (share.range.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                          std::memory_order_acquire)) {
      return true;
    }
  }
  return false;
}

void ThreadPool::TakeTasks(int thread) {
  const int threads = this->threads();
  for (int i = 0; i < threads; ++i) {
    Share& share = shares_[(thread + i) % threads];
    int done = 0;
    int begin, end;
    while (TakeIndices(share, begin, end)) {
      const int first = share.first.load(std::memory_order_relaxed);
      share.task(share.body, first + begin, first + end, thread);
      done += end - begin;
    }
    // Told at once, not after a look at the others' shares.
    if (done > 0 &&
        unfinished_.fetch_sub(done, std::memory_order_acq_rel) == done) {
      unfinished_.notify_all();
    }
  }
}

void ThreadPool::WorkerMain(int thread) {
  const DefinedFloatMode float_mode;
  while (!stopping_.load()) {
    const std::uint32_t seen = LoopOf(shares_[thread].range.load());
    TakeTasks(thread);
    WaitForLoop(thread, seen);
  }
}

// Returns when a loop after `seen` has started, or the pool stops; at times
// without a reason.
void ThreadPool::WaitForLoop(int thread, std::uint32_t seen) {
  const std::atomic<std::uint64_t>& range = shares_[thread].range;
  const auto waits = [&] { return LoopOf(range.load()) == seen; };
  for (int spin = 0; spin < kSpins; ++spin) {
    if (!waits() || stopping_.load()) return;
    Pause();
  }
  asleep_.exchange(true);
  const std::uint32_t wake = wake_.load();
  if (waits() && !stopping_.load()) wake_.wait(wake);
}

}  // namespace holdfast::kernels
