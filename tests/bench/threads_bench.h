// What two threads gain over one in a model's steps, operation by operation,
// beside what the machine lets them gain.
#ifndef HOLDFAST_TESTS_BENCH_THREADS_BENCH_H_
#define HOLDFAST_TESTS_BENCH_THREADS_BENCH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast::bench {

struct ThreadsBenchOptions {
  std::string file;
  int rounds = 5;
  int prompt = 512;
  int generate = 64;
  std::vector<int> depths = {0, 2048};
};

// Medians over the rounds; a ratio is of two runs that followed each other.
struct ThreadsGain {
  std::string test;  // "prefill" or "decode"
  int depth = 0;
  std::string operation;  // empty: the whole test
  double share = 0;       // of the test's time on two threads
  double one_us = 0;      // of a call, on one thread
  double two_us = 0;
  double gain = 0;
  double gb_per_s = 0;  // of weights, keys and values, on two threads
  // The most that the machine allowed in the same round: an operation on two
  // threads takes half the time of one thread, or the time in which two threads
  // read its bytes from memory if that is longer, and the start of a loop.
  double most = 0;
};

// The machine while the tests ran: two virtual CPUs may move between cores that
// are near each other and cores that are not.
struct ThreadsMachine {
  double one_read = 0;  // plain reads of 128 MiB, GB/s
  double two_read = 0;
  double loop_us = 0;  // an empty parallel loop
};

struct ThreadsBench {
  std::string model;
  std::string backend;
  ThreadsMachine machine;
  std::vector<ThreadsGain>
      gains;  // of a test: the whole, then the longest first
};

absl::StatusOr<ThreadsBench> RunThreadsBench(
    const ThreadsBenchOptions& options);

}  // namespace holdfast::bench

#endif  // HOLDFAST_TESTS_BENCH_THREADS_BENCH_H_
