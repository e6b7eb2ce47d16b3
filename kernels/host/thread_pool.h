// Persistent threads for one parallel loop at a time. An idle pool uses no
// CPU: a thread that finds nothing to do spins for some tens of microseconds,
// then sleeps.
#ifndef HOLDFAST_KERNELS_HOST_THREAD_POOL_H_
#define HOLDFAST_KERNELS_HOST_THREAD_POOL_H_

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
  // even.
  template <typename Body>
  void ForRuns(int count, int run, const Body& body) {
    Start<Body>(count, run, &InvokeRun<Body>, body);
  }

  // The indices of a loop over `count`, at most kMostShared, that are a
  // thread's own. Thread 0 is the caller of For, who starts first: where shares
  // differ its own is the larger, and it has the last indices.
  struct Range {
    int begin = 0;
    int end = 0;
  };
  Range ShareOf(int count, int thread) const {
    const std::int64_t place = threads() - 1 - thread;
    return {static_cast<int>(count * place / threads()),
            static_cast<int>(count * (place + 1) / threads())};
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
  // Takes the next indices of a share, [begin, end); false: none is left.
  static bool TakeIndices(Share& share, int& begin, int& end);
  // Runs what is left of a share. `done`: indices of the loop that this thread
  // has run before and not told of.
  void FinishShare(Share& share, int thread, int done);
  void FinishOthers(int thread);
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

  std::vector<Share> shares_;
  // The caller writes these at every start.
  alignas(kLineBytes) std::uint32_t loop_ = 0;
  std::atomic<int> unfinished_{0};
  // A worker may be asleep, on `wake_`.
  alignas(kLineBytes) std::atomic<bool> asleep_{false};
  alignas(kLineBytes) std::atomic<std::uint32_t> wake_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_THREAD_POOL_H_
