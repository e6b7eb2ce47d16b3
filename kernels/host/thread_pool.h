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

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(index, thread) once for every index in [0, count), in any order
  // on any thread, `thread` in [0, threads()); returns when all have returned.
  // Each thread goes upwards through a share of its own, as memory is read
  // fastest, then through what others have left of theirs.
  // Everything written before is seen inside, everything written inside is
  // seen after. One caller at a time; body must not throw or call For.
  template <typename Body>
  void For(int count, const Body& body) {
    Run(count, &Invoke<Body>, &body);
  }

 private:
  using Task = void (*)(const void* body, int index, int thread);

  template <typename Body>
  static void Invoke(const void* body, int index, int thread) {
    (*static_cast<const Body*>(body))(index, thread);
  }

  void Run(int count, Task task, const void* body);
  void WorkerMain(int thread);
  void TakeTasks(int thread);
  bool EnterLoop();
  void LeaveLoop();

  // Threads that write one line of memory by turns wait for each other.
  static constexpr std::size_t kLineBytes = 64;

  // The indices of one thread that nobody has taken.
  struct alignas(kLineBytes) Share {
    std::atomic<int> next{0};
    int end = 0;
  };

  // Raised for every loop, and to stop.
  alignas(kLineBytes) std::atomic<std::uint32_t> epoch_{0};
  std::atomic<bool> stopping_{false};
  // Written while the gate is closed and empty, read inside it.
  Task task_ = nullptr;
  const void* body_ = nullptr;
  std::vector<Share> shares_;
  // Bit 31: the loop is open; below: workers inside. A worker that comes late
  // finds it closed and is not waited for.
  alignas(kLineBytes) std::atomic<std::uint32_t> gate_{0};
  alignas(kLineBytes) std::vector<std::thread> workers_;
};

}  // namespace holdfast::kernels

#endif  // HOLDFAST_KERNELS_HOST_THREAD_POOL_H_
