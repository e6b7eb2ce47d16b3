// Tokens from logits on the device: the largest ones, their softmax, and how
// many of them top_k and top_p leave. Sums are of a fixed order; of equal
// logits the lower id comes first.
#ifndef HOLDFAST_KERNELS_CUDA_SAMPLING_H_
#define HOLDFAST_KERNELS_CUDA_SAMPLING_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace holdfast::kernels::cuda {

inline constexpr int kMostCandidates = 256;

struct LogitRows {
  const float* logits = nullptr;  // rows of `vocab`, one after the other
  int rows = 0;
  int vocab = 0;
};

// What the filters leave of a row's candidates.
struct Kept {
  float total = 0;  // softmax weights, before top_p, of what top_k left
  float sum = 0;    // of the first `count` candidates
  int count = 0;
  // The candidates do not reach top_p of the total: more of them are needed.
  int short_of = 0;
};

// [rows][candidates] each; candidates is 1 (the arg max) to kMostCandidates and
// at most vocab. A logit that is NaN is never among them.
cudaError_t TopCandidates(cudaStream_t stream, const LogitRows& rows,
                          int candidates, std::int32_t* ids, float* values);

struct Filter {
  float temperature = 1;  // above 0
  bool top_k = false;     // the candidates are all there is
  float top_p = 1;        // above 0; the fewest whose sum reaches top_p x total
};
// weights[r][i] = exp((values[r][i] - values[r][0]) / temperature), of sorted
// candidates; kept: one a row.
cudaError_t KeepCandidates(cudaStream_t stream, const LogitRows& rows,
                           int candidates, const float* values,
                           const Filter& filter, float* weights, Kept* kept);

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_SAMPLING_H_
