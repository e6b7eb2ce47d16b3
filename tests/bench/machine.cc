#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "kernels/host/host_backend.h"
#include "tests/bench/cases.h"

namespace holdfast::bench {

Machine::Machine() {
  kernels::Limits limits;
  limits.max_rows = 1024;
  limits.max_cols = 8448;
  limits.max_vocab = 65536;
  limits.max_heads = 32;
  limits.max_head_dim = 128;
  limits.max_positions = 16384;
  limits.gdn = kGdn;
  for (const int i : {0, 1}) {
    const int threads = i == 0 ? kThreads : 1;
    backends_[i] =
        OrDie(kernels::MakeHostBackend({.threads = threads}), "host backend");
    OrDie(backends_[i]->Prepare(limits), "host backend");
    pools_[i] = std::make_unique<kernels::ThreadPool>(threads);
  }
}

void OrDie(const kernels::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.message().c_str());
  std::exit(EXIT_FAILURE);
}

void CheckSame(const std::vector<float>& kernel,
               const std::vector<float>& floor, const std::string& name) {
  float largest = 0, difference = 0;
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    largest = std::max(largest, std::abs(kernel[i]));
    difference = std::max(difference, std::abs(kernel[i] - floor[i]));
  }
  if (difference <= 1e-3f * largest) return;
  std::fprintf(stderr, "%s: kernel and floor differ by %g of %g\n",
               name.c_str(), difference, largest);
  std::exit(EXIT_FAILURE);
}

}  // namespace holdfast::bench
