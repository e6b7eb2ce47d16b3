// How fast a model file prefills and decodes, through the model adapter alone:
// what other programs' model benchmarks measure.
#ifndef HOLDFAST_TESTS_BENCH_MODEL_BENCH_H_
#define HOLDFAST_TESTS_BENCH_MODEL_BENCH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast::bench {

struct ModelBenchOptions {
  std::string file;
  int threads = 2;
  int prompt = 2048;              // tokens of a measured prefill
  int generate = 32;              // tokens of a measured decode
  std::vector<int> depths = {0};  // tokens before the measured ones, ascending
};

// All calls of one operation; of products, with matrices of one shape.
struct OperationTime {
  std::string name;
  long calls = 0;
  double seconds = 0;
  double bytes = 0;  // of weights, keys and values, read once in each call
};

struct ModelSpeed {
  std::string test;  // "prefill" or "decode"
  int tokens = 0;
  int depth = 0;
  double tokens_per_s = 0;
  std::vector<OperationTime> operations;  // the longest first
};

struct ModelBench {
  std::string model;
  std::string backend;  // with its instruction set
  std::vector<ModelSpeed> speeds;
};

// One measurement of each; after an untimed prefill.
absl::StatusOr<ModelBench> RunModelBench(const ModelBenchOptions& options);

}  // namespace holdfast::bench

#endif  // HOLDFAST_TESTS_BENCH_MODEL_BENCH_H_
