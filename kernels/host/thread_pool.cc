#include "kernels/host/thread_pool.h"

#include <algorithm>
#include <cfenv>
#include <cstdlib>
#include <cstring>

#include "kernels/host/fetch.h"

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
// Of Done::loop_and_count.
constexpr int kDoneShift = 32;
constexpr std::uint64_t kDoneMask = 0xffffffff;

// Where the run that holds index `begin` ends.
int RunEnd(int begin, int run, int end) {
  return std::min(end, begin + run - begin % run);
}

// Pauses before a thread that is done looks at what others have left: about a
// microsecond. Shares end at nearly the same time, and a look takes the line of
// its share away from a thread that is at work.
constexpr int kPatience = 40;

// Pauses at a loop's end from which on the others were late, and how many more
// of the loops were so, or were not, before the shares change: at the end they
// are late as often as early.
constexpr int kLate = 4;
constexpr int kMoreLoops = 16;
constexpr int kMostLead = 6;

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

void ThreadBalance::Learn(int pauses) {
  more_late_ += pauses >= kLate ? 1 : -1;
  if (std::abs(more_late_) < kMoreLoops) return;
  const int lead = lead_.load(std::memory_order_relaxed);
  lead_.store(
      std::clamp(lead + (more_late_ > 0 ? 1 : -1), -kMostLead, kMostLead),
      std::memory_order_relaxed);
  more_late_ = 0;
}

ThreadPool::ThreadPool(int threads) : shares_(threads), done_(threads) {
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
  pauses_ = 0;
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
  loop_ = (loop_ + 1) & kLoopMask;
  // What was done in the loop that had this number long ago does not count.
  if (loop_ == 0) {
    for (Done& done : done_) done.loop_and_count.store(0);
  }
  // The caller's own first run is not put up to be taken: taking it would wait
  // until the others' shares are written.
  const Range own = ShareOf(count, 0, lead_);
  const int first_end = RunEnd(own.begin, run, own.end);
  for (int thread = threads() - 1; thread >= 0; --thread) {
    const Range range =
        thread == 0 ? Range{first_end, own.end} : ShareOf(count, thread, lead_);
    Share& share = shares_[thread];
    share.task = job.task;
    std::memcpy(share.closure, job.closure, job.closure_bytes);
    share.range.store(MakeRange(loop_, run, range.begin, range.end),
                      std::memory_order_release);
  }
  if (asleep_.load(std::memory_order_relaxed)) WakeSleepers();

  if (own.begin < first_end) job.task(job.closure, own.begin, first_end, 0);
  const int done = first_end - own.begin + FinishShare(shares_[0], 0);
  // Either this sees that a worker has gone to sleep meanwhile, or that one has
  // seen the loop.
  WakeSleepers();
  WaitForOthers(count, done);
}

int ThreadPool::DoneByOthers() const {
  int done = 0;
  for (std::size_t thread = 1; thread < done_.size(); ++thread) {
    const std::uint64_t value =
        done_[thread].loop_and_count.load(std::memory_order_seq_cst);
    if (value >> kDoneShift == loop_)
      done += static_cast<int>(value & kDoneMask);
  }
  return done;
}

void ThreadPool::WaitForOthers(int count, int own) {
  int spin = 0;
  for (; spin < kSpins; ++spin) {
    if (own + DoneByOthers() == count) break;
    if (spin == kPatience) own += FinishOthers(0);
    Pause();
  }
  pauses_ = spin;
  if (spin < kSpins) return;
  // Either this sees that the last is done, or that worker sees the flag; an
  // exchange, as in WorkOn.
  caller_waits_.exchange(true);
  for (;;) {
    const std::uint32_t ended = ended_.load();
    if (own + DoneByOthers() == count) break;
    ended_.wait(ended);
  }
  caller_waits_.store(false);
}

void ThreadPool::WakeSleepers() {
  if (!asleep_.exchange(false)) return;
  wake_.fetch_add(1);
  wake_.notify_all();
}

bool ThreadPool::TakeIndices(Share& share, Taken& taken) {
  std::uint64_t seen = share.range.load(std::memory_order_acquire);
  while (NextOf(seen) < EndOf(seen)) {
    const int begin = NextOf(seen);
    const int end = RunEnd(begin, RunOf(seen), EndOf(seen));
    const std::uint64_t next =
        seen + (static_cast<std::uint64_t>(end - begin) << kNextShift);
    if (share.range.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                          std::memory_order_acquire)) {
      taken = {LoopOf(seen), begin, end};
      return true;
    }
  }
  return false;
}

int ThreadPool::FinishShare(Share& share, int thread) {
  int done = 0;
  for (Taken taken; TakeIndices(share, taken);) {
    share.task(share.closure, taken.begin, taken.end, thread);
    done += taken.end - taken.begin;
  }
  return done;
}

int ThreadPool::FinishOthers(int thread) {
  int done = 0;
  for (int i = 1; i < threads(); ++i) {
    done += FinishShare(shares_[(thread + i) % threads()], thread);
  }
  return done;
}

void ThreadPool::WorkOn(Share& share, int thread) {
  // While a worker has indices that it has not told of, their loop goes on.
  std::atomic<std::uint64_t>& told = done_[thread].loop_and_count;
  std::uint64_t done = 0;
  for (Taken taken; TakeIndices(share, taken);) {
    if (done == 0) {
      FetchLinesToWrite(&told, sizeof(told));
      done = std::uint64_t{taken.loop} << kDoneShift;
    }
    share.task(share.closure, taken.begin, taken.end, thread);
    done += taken.end - taken.begin;
  }
  if (done == 0) return;
  const std::uint64_t before = told.load(std::memory_order_relaxed);
  if (before >> kDoneShift == done >> kDoneShift) done += before & kDoneMask;
  // An exchange, which costs x86 no more: an emulator may let the load below
  // pass an ordered store (QEMU 7.2 does, of Arm on x86).
  told.exchange(done);
  if (!caller_waits_.load()) return;
  ended_.fetch_add(1);
  ended_.notify_one();
}

void ThreadPool::WorkerMain(int thread) {
  const DefinedFloatMode float_mode;
  while (!stopping_.load()) {
    const std::uint32_t seen = LoopOf(shares_[thread].range.load());
    WorkOn(shares_[thread], thread);
    if (SeesLoop(thread, seen, kPatience)) continue;
    for (int i = 1; i < threads(); ++i) {
      WorkOn(shares_[(thread + i) % threads()], thread);
    }
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
