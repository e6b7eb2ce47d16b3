#include "kernels/host/thread_pool.h"

#include <algorithm>
#include <cfenv>
#include <cstring>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace holdfast::kernels {
namespace {

// Of Share::range, from the lowest bit: the end, the next index, indices in a
// run, the number of the loop.
constexpr int kNextShift = 16;
constexpr int kRunShift = 32;
constexpr int kMostRun = 0xff;
constexpr int kLoopShift = 40;
constexpr std::uint32_t kLoopMask = 0xffffff;

std::uint64_t MakeRange(std::uint32_t loop, int run, int next, int end) {
  return std::uint64_t{loop} << kLoopShift |
         static_cast<std::uint64_t>(run) << kRunShift |
         static_cast<std::uint64_t>(next) << kNextShift |
         static_cast<std::uint64_t>(end);
}
std::uint32_t LoopOf(std::uint64_t range) {
  return static_cast<std::uint32_t>(range >> kLoopShift);
}
int RunOf(std::uint64_t range) {
  return static_cast<int>(range >> kRunShift & kMostRun);
}
int NextOf(std::uint64_t range) {
  return static_cast<int>(range >> kNextShift & ThreadPool::kMostShared);
}
int EndOf(std::uint64_t range) {
  return static_cast<int>(range & ThreadPool::kMostShared);
}
// Where the run that holds index `begin` ends.
int RunEnd(int begin, int run, int end) {
  return std::min(end, begin + run - begin % run);
}

// Pauses before a thread sleeps. Between the products of a forward pass there
// are a few microseconds; a pause is tens of nanoseconds.
constexpr int kSpins = 2000;

// Pauses before a thread that is done looks at what others have left: about a
// microsecond. Shares end at nearly the same time, and a look takes the line of
// its share away from a thread that is at work.
constexpr int kPatience = 40;

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

void ThreadPool::Run(int count, int run, const Job& job) {
  if (workers_.empty() || count <= 1) {
    for (int begin = 0; begin < count; begin += run) {
      job.task(job.closure, begin, std::min(begin + run, count), 0);
    }
    return;
  }
  run = std::min(run, kMostRun);
  if (count <= kMostShared) {
    RunShared(count, run, job);
    return;
  }
  // Parts of whole runs.
  const int most = kMostShared / run * run;
  for (int first = 0; first < count; first += most) {
    const auto part = [first, &job](int begin, int end, int thread) {
      job.task(job.closure, first + begin, first + end, thread);
    };
    using Part = decltype(part);
    static_assert(kCopied<Part>);
    RunShared(std::min(most, count - first), run,
              {&InvokeRun<Part>, &part, sizeof(part)});
  }
}

void ThreadPool::RunShared(int count, int run, const Job& job) {
  unfinished_.store(count, std::memory_order_relaxed);
  loop_ = (loop_ + 1) & kLoopMask;
  // The caller's own first run is not put up to be taken: taking it would wait
  // until the others' shares are written.
  const Range own = ShareOf(count, 0);
  const int first_end = RunEnd(own.begin, run, own.end);
  for (int thread = threads() - 1; thread >= 0; --thread) {
    const Range range =
        thread == 0 ? Range{first_end, own.end} : ShareOf(count, thread);
    Share& share = shares_[thread];
    share.task = job.task;
    std::memcpy(share.closure, job.closure, job.closure_bytes);
    share.range.store(MakeRange(loop_, run, range.begin, range.end),
                      std::memory_order_release);
  }
  if (asleep_.load(std::memory_order_relaxed)) WakeSleepers();

  job.task(job.closure, own.begin, first_end, 0);
  FinishShare(shares_[0], 0, first_end - own.begin);
  // Either this sees that a worker has gone to sleep meanwhile, or that one has
  // seen the loop.
  WakeSleepers();

  for (int spin = 0;; ++spin) {
    const int unfinished = unfinished_.load(std::memory_order_acquire);
    if (unfinished == 0) return;
    if (spin == kPatience) FinishOthers(0);
    if (spin < kSpins) {
      Pause();
    } else {
      unfinished_.wait(unfinished, std::memory_order_acquire);
    }
  }
}

void ThreadPool::WakeSleepers() {
  if (!asleep_.exchange(false)) return;
  wake_.fetch_add(1);
  wake_.notify_all();
}

bool ThreadPool::TakeIndices(Share& share, int& begin, int& end) {
  std::uint64_t seen = share.range.load(std::memory_order_acquire);
  while (NextOf(seen) < EndOf(seen)) {
    begin = NextOf(seen);
    end = RunEnd(begin, RunOf(seen), EndOf(seen));
    const std::uint64_t next =
        seen + (static_cast<std::uint64_t>(end - begin) << kNextShift);
    if (share.range.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                          std::memory_order_acquire)) {
      return true;
    }
  }
  return false;
}

void ThreadPool::FinishShare(Share& share, int thread, int done) {
  int begin, end;
  while (TakeIndices(share, begin, end)) {
    share.task(share.closure, begin, end, thread);
    done += end - begin;
  }
  if (done > 0 &&
      unfinished_.fetch_sub(done, std::memory_order_acq_rel) == done) {
    unfinished_.notify_all();
  }
}

void ThreadPool::FinishOthers(int thread) {
  for (int i = 1; i < threads(); ++i) {
    FinishShare(shares_[(thread + i) % threads()], thread, 0);
  }
}

void ThreadPool::WorkerMain(int thread) {
  const DefinedFloatMode float_mode;
  while (!stopping_.load()) {
    const std::uint32_t seen = LoopOf(shares_[thread].range.load());
    FinishShare(shares_[thread], thread, 0);
    if (SeesLoop(thread, seen, kPatience)) continue;
    FinishOthers(thread);
    WaitForLoop(thread, seen);
  }
}

// Waits a little for a loop after `seen`, or the pool's end.
bool ThreadPool::SeesLoop(int thread, std::uint32_t seen, int spins) const {
  for (int spin = 0; spin < spins; ++spin) {
    if (LoopOf(shares_[thread].range.load()) != seen || stopping_.load()) {
      return true;
    }
    Pause();
  }
  return false;
}

// Returns when a loop after `seen` has started, or the pool stops; at times
// without a reason.
void ThreadPool::WaitForLoop(int thread, std::uint32_t seen) {
  if (SeesLoop(thread, seen, kSpins)) return;
  asleep_.exchange(true);
  const std::uint32_t wake = wake_.load();
  const bool waits = LoopOf(shares_[thread].range.load()) == seen;
  if (waits && !stopping_.load()) wake_.wait(wake);
}

}  // namespace holdfast::kernels
