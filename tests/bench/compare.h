// Kernels beside their floors: each is run in turn with the floor that the same
// machine sets at the same moment, so that a ratio means something even where
// the clock or the neighbours change.
#ifndef HOLDFAST_TESTS_BENCH_COMPARE_H_
#define HOLDFAST_TESTS_BENCH_COMPARE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace holdfast::bench {

// Threads of the runs that are compared with one thread.
inline constexpr int kThreads = 2;

// A kernel and what it is held against, with their inputs; `threads` is 1 or
// kThreads.
class Case {
 public:
  virtual ~Case() = default;
  virtual void Kernel(int threads) = 0;
  virtual void Floor(int threads) = 0;
};

struct CaseSpec {
  std::string name;   // "product/1024 rows/bf16/..."
  std::string floor;  // what Floor does; empty: there is none here
  double work = 0;    // of one run, in `unit`
  std::string unit;   // "GFLOP" or "GB"
  // Makes the inputs; held only while the case runs.
  std::function<std::unique_ptr<Case>()> make;
};

struct CompareOptions {
  int rounds = 5;
  double min_seconds = 0.1;  // of one measurement
};

// Medians over the rounds. Rates are of kThreads threads, in `unit` a second;
// ratios are of the two runs that followed each other in a round, and 0 where
// there is no floor.
struct Comparison {
  std::string name;
  std::string floor;
  std::string unit;
  double rate = 0;
  double floor_rate = 0;
  double ratio = 0;  // the kernel's speed over the floor's
  // The same on one thread, by the CPU time it took: holds on a machine that
  // has other things to do as well.
  double ratio_1 = 0;
  double threads_speed = 0;  // kThreads threads over one
  // The same of the floor: what this machine allows.
  double floor_threads_speed = 0;
};

// Measures with Google Benchmark, whose Initialize must have been called.
Comparison Compare(const CaseSpec& spec, const CompareOptions& options);

}  // namespace holdfast::bench

#endif  // HOLDFAST_TESTS_BENCH_COMPARE_H_
