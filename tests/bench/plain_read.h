// The fastest that memory can be read here: the floor of whatever streams.
#ifndef HOLDFAST_TESTS_BENCH_PLAIN_READ_H_
#define HOLDFAST_TESTS_BENCH_PLAIN_READ_H_

#include <cstddef>

#include "kernels/host/memory.h"
#include "kernels/host/thread_pool.h"

namespace holdfast::bench {

// Memory of its own, on huge pages as the backend's.
class PlainRead {
 public:
  // Aborts without memory.
  explicit PlainRead(std::size_t bytes);

  // Reads every byte once, on all threads of the pool.
  void Run(kernels::ThreadPool& pool);

 private:
  kernels::HostMemory memory_;
};

}  // namespace holdfast::bench

#endif  // HOLDFAST_TESTS_BENCH_PLAIN_READ_H_
