// The fastest that memory can be changed in place here: the floor of a decode
// step's recurrence.
#ifndef HOLDFAST_TESTS_BENCH_PLAIN_SCALE_H_
#define HOLDFAST_TESTS_BENCH_PLAIN_SCALE_H_

#include <cstddef>

#include "kernels/host/memory.h"
#include "kernels/host/thread_pool.h"

namespace holdfast::bench {

// Memory of its own, on huge pages as the backend's.
class PlainScale {
 public:
  // Aborts without memory.
  explicit PlainScale(std::size_t bytes);

  // Multiplies every float once, on all threads of the pool.
  void Run(kernels::ThreadPool& pool);

 private:
  kernels::HostMemory memory_;
  float factor_ = 1.0f;  // no number may grow or vanish in many runs
};

}  // namespace holdfast::bench

#endif  // HOLDFAST_TESTS_BENCH_PLAIN_SCALE_H_
