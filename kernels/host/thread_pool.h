// Persistent threads for one parallel loop at a time. An idle pool uses no
// CPU: a thread that finds nothing to do spins for some tens of microseconds,
// then sleeps.
#ifndef HOLDFAST_KERNELS_HOST_THREAD_POOL_H_
#define HOLDFAST_KERNELS_HOST_THREAD_POOL_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace holdfast::kernels {

// Sets round to nearest and no flushing of subnormals while it lives, whatever
// the calling program chose, and restores that.
class DefinedFloatMode {
 public:
  DefinedFloatMode();
  ~DefinedFloatMode();
  DefinedFloatMode(const DefinedFloatMode&) = delete;
  DefinedFloatMode& operator=(const DefinedFloatMode&) = delete;

 private:
  std::uint64_t saved_ = 0;
};

// Learns how a loop that runs again and again is best shared: a worker has its
// start, what the caller has just written and the way back before it, which
// between distant cores takes as long as a good part of a small loop. Changes
// where the shares end and nothing else. The caller's thread only, but lead()
// may be read by all.
class ThreadBalance {
 public:
  // Indices that the caller has more, or less, than an even share.
  int lead() const { return lead_.load(std::memory_order_relaxed); }
  // After a loop for whose end the caller has waited for so many pauses.
  void Learn(int pauses);

 private:
  std::atomic<int> lead_{0};
  int more_late_ = 0;  // loops with a wait over those without, lately
};

class ThreadPool {
 public:
  // `threads` counts the caller of For, so threads - 1 are started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(shares_.size()); }

  // Calls body(index, thread) once for every index in [0, count), in any order
  // on any thread, `thread` in [0, threads()); returns when all have returned.
  // Each thread goes upwards through a share of its own (ShareOf), as memory is
  // read fastest, then through what others have left of theirs.
  // Everything written before is seen inside, everything written inside is
  // seen after. One caller at a time; body must not throw or call For. A small
  // body may be copied: one that captures values reaches the other threads
  // without a look at the caller's stack.
  template <typename Body>
  void For(int count, const Body& body) {
    Start<Body>(count, 1, &Invoke<Body>, body);
  }

  // The same with body(begin, end, thread), which gets up to `run` (below 256)
  // indices at once: [0, run), [run, 2 run), ..., those of them that are in one
  // share. For work that is cheaper together but may be cut so that shares are
  // even. `lead`: of the shares, as ShareOf takes it.
  template <typename Body>
  void ForRuns(int count, int run, int lead, const Body& body) {
    lead_ = lead;
    Start<Body>(count, run, &InvokeRun<Body>, body);
    lead_ = 0;
  }

  // Pauses for which the caller has waited for the others at the end of the
  // last loop; each takes tens of nanoseconds. At kSpins it sleeps, as a thread
  // without a loop does: between the products of a forward pass there are a few
  // microseconds.
  int pauses() const { return pauses_; }
  static constexpr int kSpins = 2000;

  // The indices of a loop over `count`, at most kMostShared, that are a
  // thread's own. Thread 0 is the caller of For, who starts first: where shares
  // differ its own is the larger, and it has the last indices; of them `lead`
  // more than the even share, as far as there are any.
  struct Range {
    int begin = 0;
    int end = 0;
  };
  Range ShareOf(int count, int thread, int lead = 0) const {
    const std::int64_t others = threads() - 1;
    const std::int64_t even = count * others / threads();
    const std::int64_t theirs =
        others == 0 ? 0 : std::clamp<std::int64_t>(even - lead, 0, count);
    if (thread == 0) return {static_cast<int>(theirs), count};
    const std::int64_t place = others - thread;
    return {static_cast<int>(theirs * place / others),
            static_cast<int>(theirs * (place + 1) / others)};
  }
  static constexpr int kMostShared = 0xffff;

 private:
  using Task = void (*)(const void* closure, int begin, int end, int thread);

  // Threads that write one line of memory by turns wait for each other.
  static constexpr std::size_t kLineBytes = 64;
  static constexpr std::size_t kClosureBytes = 48;

  template <typename Body>
  static constexpr bool kCopied = std::is_trivially_copyable_v<Body> &&
                                  sizeof(Body) <= kClosureBytes &&
                                  alignof(Body) <= alignof(void*);

  template <typename Body>
  static const Body& BodyOf(const void* closure) {
    if constexpr (kCopied<Body>) {
      return *static_cast<const Body*>(closure);
    } else {
      return **static_cast<const Body* const*>(closure);
    }
  }
  template <typename Body>
  static void Invoke(const void* closure, int begin, int, int thread) {
    BodyOf<Body>(closure)(begin, thread);
  }
  template <typename Body>
  static void InvokeRun(const void* closure, int begin, int end, int thread) {
    BodyOf<Body>(closure)(begin, end, thread);
  }
  template <typename Body>
  void Start(int count, int run, Task task, const Body& body) {
    if constexpr (kCopied<Body>) {
      Run(count, run, {task, &body, sizeof(Body)});
    } else {
      const Body* const pointer = &body;
      Run(count, run, {task, &pointer, sizeof(pointer)});
    }
  }

  // A loop's work: what Share has a copy of.
  struct Job {
    Task task = nullptr;
    const void* closure = nullptr;
    std::size_t closure_bytes = 0;
  };
  struct Share;

  void Run(int count, int run, const Job& job);
  void RunShared(int count, int run, const Job& job);
  // Indices that are a thread's now; `loop`: of which loop.
  struct Taken {
    std::uint32_t loop = 0;
    int begin = 0;
    int end = 0;
  };
  // Takes the next indices of a share; false: none is left.
  static bool TakeIndices(Share& share, Taken& taken);
  // Runs what is left of a share; returns how many indices that was.
  int FinishShare(Share& share, int thread);
  int FinishOthers(int thread);
  // The same of a worker, who tells the caller.
  void WorkOn(Share& share, int thread);
  // Indices of the running loop that the workers have done.
  int DoneByOthers() const;
  // Returns when the workers have done what the caller, with `own` done, has
  // not; takes over what they have not begun.
  void WaitForOthers(int count, int own);
  void WakeSleepers();
  void WorkerMain(int thread);
  bool SeesLoop(int thread, std::uint32_t seen, int spins) const;
  void WaitForLoop(int thread, std::uint32_t seen);

  // Indices of one thread and what to do with them: all that it needs to start
  // is in one line, because each line that it waits for takes a good part of a
  // microsecond between distant cores.
  struct alignas(kLineBytes) Share {
    // Number of the loop, indices in a run, next index, end: one word, so that
    // who takes an index has it of the loop that is running, however late it
    // comes.
    std::atomic<std::uint64_t> range{0};
    // Written while the loop has no index left, read by who has taken one.
    Task task = nullptr;
    alignas(void*) std::byte closure[kClosureBytes];
  };
  static_assert(sizeof(Share) == kLineBytes);

  // What a worker has done, in a line that only it writes: the number of the
  // loop in the upper half, indices in the lower.
  struct alignas(kLineBytes) Done {
    std::atomic<std::uint64_t> loop_and_count{0};
  };

  std::vector<Share> shares_;
  std::vector<Done> done_;
  // The caller's alone.
  alignas(kLineBytes) std::uint32_t loop_ = 0;
  int lead_ = 0;
  int pauses_ = 0;
  // The caller may be asleep, on `ended_`.
  alignas(kLineBytes) std::atomic<bool> caller_waits_{false};
  std::atomic<std::uint32_t> ended_{0};
  // A worker may be asleep, on `wake_`.
  alignas(kLineBytes) std::atomic<bool> asleep_{false};
  alignas(kLineBytes) std::atomic<std::uint32_t> wake_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_THREAD_POOL_H_
