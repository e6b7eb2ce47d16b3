// Persistent threads for one parallel loop at a time. An idle pool uses no
// CPU: a thread that finds nothing to do spins for some tens of microseconds,
// then sleeps.
#ifndef HOLDFAST_KERNELS_HOST_THREAD_POOL_H_
#define HOLDFAST_KERNELS_HOST_THREAD_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
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
  // Each thread goes upwards through a share of its own, as memory is read
  // fastest, then through what others have left of theirs.
  // Everything written before is seen inside, everything written inside is
  // seen after. One caller at a time; body must not throw or call For.
  template <typename Body>
  void For(int count, const Body& body) {
    Run(count, 1, &Invoke<Body>, &body);
  }

  // The same with body(begin, end, thread), which gets up to `run` indices at
  // once: [0, run), [run, 2 run), ..., those of them that are in one share. For
  // work that is cheaper together but may be cut so that shares are even.
  template <typename Body>
  void ForRuns(int count, int run, const Body& body) {
    Run(count, run, &InvokeRun<Body>, &body);
  }

 private:
  using Task = void (*)(const void* body, int begin, int end, int thread);

  template <typename Body>
  static void Invoke(const void* body, int begin, int, int thread) {
    (*static_cast<const Body*>(body))(begin, thread);
  }
  template <typename Body>
  static void InvokeRun(const void* body, int begin, int end, int thread) {
    (*static_cast<const Body*>(body))(begin, end, thread);
  }

  struct Share;

  void Run(int count, int run, Task task, const void* body);
  void RunPart(int first, int count, int run, Task task, const void* body);
  // Takes the next indices of a share, [begin, end) of its range; false: none
  // is left.
  static bool TakeIndices(Share& share, int& begin, int& end);
  void TakeTasks(int thread);
  void WorkerMain(int thread);
  void WaitForLoop(int thread, std::uint32_t seen);

  // Threads that write one line of memory by turns wait for each other.
  static constexpr std::size_t kLineBytes = 64;

  // Indices of one thread: all that it needs to start is in one line.
  struct alignas(kLineBytes) Share {
    // Number of the loop, next index, end: one word, so that who takes an index
    // has it of the loop that is running, however late it comes.
    std::atomic<std::uint64_t> range{0};
    // Written while the loop has no index left. Who takes indices reads these
    // two before: what it read was of its loop if the range is still the same.
    std::atomic<int> first{0};  // what index 0 of the range stands for
    std::atomic<int> run{1};
    // Read by who has taken an index.
    Task task = nullptr;
    const void* body = nullptr;
  };

  std::vector<Share> shares_;
  std::uint32_t loop_ = 0;  // of the caller
  alignas(kLineBytes) std::atomic<int> unfinished_{0};
  // A worker may be asleep, on `wake_`.
  alignas(kLineBytes) std::atomic<bool> asleep_{false};
  alignas(kLineBytes) std::atomic<std::uint32_t> wake_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_THREAD_POOL_H_
