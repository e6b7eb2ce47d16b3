// Shared memory of a block as each thread sees it while writes are on their
// way (Order::kLate): others see a thread's writes no earlier than a barrier
// that it meets after them. No instruction is watched: what a thread has
// written is found when it stops, as what differs from what it was shown. So
// atomic operations on shared memory would be lost; no kernel has any.
#ifndef HOLDFAST_TESTS_CUDA_EMULATION_LATE_WRITES_H_
#define HOLDFAST_TESTS_CUDA_EMULATION_LATE_WRITES_H_

#include <cstddef>
#include <vector>

namespace holdfast::emulation {

class LateWrites {
 public:
  // A block begins, and its memory is the same for all. No bytes: nothing is
  // late.
  void Begin(std::byte* memory, std::size_t bytes, int threads);
  // The other calls are for blocks with late writes.
  bool active() const { return !common_.empty(); }
  // In turn: a thread goes on, it stops, and what it has written so far is from
  // now on for all.
  void Enter(int thread);
  void Leave(int thread);
  void Publish(int thread);

 private:
  struct Write {
    std::size_t at;
    std::byte value;
  };

  std::byte* memory_ = nullptr;
  std::vector<std::byte> common_;       // what all see
  std::vector<std::byte> shown_;        // to the running thread, if it is more
  const std::byte* entered_ = nullptr;  // one of both
  std::vector<std::vector<Write>> own_;
};

}  // namespace holdfast::emulation

#endif  // HOLDFAST_TESTS_CUDA_EMULATION_LATE_WRITES_H_
