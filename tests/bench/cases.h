// Every kernel that a Llama model runs, at the sizes of the demo model and at
// larger ones, and the recurrent layer of Qwen3.5.
#ifndef HOLDFAST_TESTS_BENCH_CASES_H_
#define HOLDFAST_TESTS_BENCH_CASES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/host/thread_pool.h"
#include "tests/bench/compare.h"

namespace holdfast::bench {

// The backend and the floors' threads, at one and at kThreads threads.
class Machine {
 public:
  Machine();  // aborts where there is no backend

  kernels::Backend& backend(int threads) { return *backends_[threads == 1]; }
  kernels::ThreadPool& pool(int threads) { return *pools_[threads == 1]; }

 private:
  std::unique_ptr<kernels::Backend> backends_[2];
  std::unique_ptr<kernels::ThreadPool> pools_[2];
};

// Specifications refer to `machine`, which must outlive them.
std::vector<CaseSpec> MachineCases(Machine& machine);
std::vector<CaseSpec> ProductCases(Machine& machine);
std::vector<CaseSpec> AttentionCases(Machine& machine);
std::vector<CaseSpec> RowCases(Machine& machine);
std::vector<CaseSpec> GdnCases(Machine& machine);

// The demo model's sizes.
inline constexpr int kLayers = 30;
inline constexpr int kHidden = 576;
inline constexpr int kInner = 1536;
inline constexpr int kHeads = 9;
inline constexpr int kKvHeads = 3;
inline constexpr int kHeadDim = 64;
inline constexpr int kJoined = (kHeads + 2 * kKvHeads) * kHeadDim;

// Of Qwen3.5 0.8B: 16 heads of 128 x 128.
inline constexpr kernels::GdnShape kGdn = {16, 16, 128, 128};

// Ends the program when `what` failed: a benchmark has nothing else to do.
void OrDie(const kernels::Status& status, const char* what);
template <typename T>
T OrDie(kernels::StatusOr<T> value, const char* what) {
  OrDie(value.status(), what);
  return std::move(value).value();
}

// Ends the program unless the floor computes what the kernel does: the largest
// difference may be 1e-3 of the largest number.
void CheckSame(const std::vector<float>& kernel,
               const std::vector<float>& floor, const std::string& name);

}  // namespace holdfast::bench

#endif  // HOLDFAST_TESTS_BENCH_CASES_H_
