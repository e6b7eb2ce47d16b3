// What a good BLAS makes of the same work. Present where OpenBLAS was when the
// build was configured.
#ifndef HOLDFAST_TESTS_BENCH_BLAS_H_
#define HOLDFAST_TESTS_BENCH_BLAS_H_

#include <string>
#include <vector>

#include "kernels/host/thread_pool.h"

namespace holdfast::bench {

constexpr bool HaveBlas() {
#ifdef HOLDFAST_HAVE_OPENBLAS
  return true;
#else
  return false;
#endif
}

// The kind of core that OpenBLAS chose its kernels for; "none" without it.
std::string BlasCore();

// y[rows][outputs] = x[rows][cols] w[outputs][cols]^T with sgemm.
void BlasProduct(const float* x, const float* w, int rows, int outputs,
                 int cols, int threads, float* y);

// Causal attention of consecutive tokens, as flash attention: tiles of keys,
// two sgemm calls each and a running softmax in between. Its inputs are as it
// likes them best: widened, each KV head apart.
struct FlashShape {
  int kv_heads = 0;
  int group = 0;  // query heads of a KV head
  int head_dim = 0;
  int position = 0;  // of the first token
  int tokens = 0;
  float scale = 1;

  int keys() const { return position + tokens; }
  int rows() const { return tokens * group; }  // of a KV head
};

class BlasFlash {
 public:
  // q: [kv head][token][query head of the group][dim]; k, v: [kv head][key]
  // [dim]. Copies them.
  BlasFlash(const FlashShape& shape, int threads, std::vector<float> q,
            std::vector<float> k, std::vector<float> v);

  void Run(kernels::ThreadPool& pool);
  const std::vector<float>& out() const { return out_; }  // ordered as q

 private:
  void RunRows(int kv_head, int first_row, int rows, float* scratch);

  FlashShape shape_;
  std::vector<float> q_, k_, v_, out_;
  std::vector<std::vector<float>> scratch_;  // of each thread
};

}  // namespace holdfast::bench

#endif  // HOLDFAST_TESTS_BENCH_BLAS_H_
