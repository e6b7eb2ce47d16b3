#include "kernels/host/thread_pool.h"

#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace holdfast::kernels {
namespace {

constexpr std::uint32_t kOpen = 1u << 31;
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
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int count, Task task, const void* body) {
  if (workers_.empty() || count <= 1) {
    for (int index = 0; index < count; ++index) task(body, index, 0);
    return;
  }
  task_ = task;
  body_ = body;
  const std::int64_t threads = this->threads();
  for (std::int64_t t = 0; t < threads; ++t) {
    shares_[t].next.store(static_cast<int>(count * t / threads),
                          std::memory_order_relaxed);
    shares_[t].end = static_cast<int>(count * (t + 1) / threads);
  }
  gate_.store(kOpen, std::memory_order_release);
  epoch_.fetch_add(1);
  epoch_.notify_all();

  TakeTasks(0);

  gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int spin = 0;; ++spin) {
    const std::uint32_t inside = gate_.load(std::memory_order_acquire);
    if (inside == 0) return;
    if (spin < kSpins) {
      Pause();
    } else {
      gate_.wait(inside, std::memory_order_acquire);
    }
  }
}

void ThreadPool::TakeTasks(int thread) {
  const int threads = this->threads();
  for (int i = 0; i < threads; ++i) {
    Share& share = shares_[(thread + i) % threads];
    for (;;) {
      const int index = share.next.fetch_add(1, std::memory_order_relaxed);
      if (index >= share.end) break;
      task_(body_, index, thread);
    }
  }
}

bool ThreadPool::EnterLoop() {
  std::uint32_t gate = gate_.load(std::memory_order_acquire);
  while ((gate & kOpen) != 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1,
                                    std::memory_order_acq_rel)) {
      return true;
    }
  }
  return false;
}

void ThreadPool::LeaveLoop() {
  if (gate_.fetch_sub(1, std::memory_order_acq_rel) == 1) gate_.notify_all();
}

void ThreadPool::WorkerMain(int thread) {
  const DefinedFloatMode float_mode;
  std::uint32_t seen = 0;
  for (;;) {
    std::uint32_t epoch = epoch_.load();
    for (int spin = 0; epoch == seen && spin < kSpins; ++spin) {
      Pause();
      epoch = epoch_.load();
    }
    if (epoch == seen) {
      epoch_.wait(seen);
      continue;
    }
    seen = epoch;
    if (stopping_.load()) return;
    if (EnterLoop()) {
      TakeTasks(thread);
      LeaveLoop();
    }
  }
}

}  // namespace holdfast::kernels
