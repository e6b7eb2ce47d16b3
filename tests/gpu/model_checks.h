// Whole models on the CUDA backend: against golden files, and resumed against
// cold runs by memcmp.
#ifndef HOLDFAST_TESTS_GPU_MODEL_CHECKS_H_
#define HOLDFAST_TESTS_GPU_MODEL_CHECKS_H_

#include <string>

#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/report.h"

namespace holdfast::gpu_check {

struct ModelSizes {
  // Of each golden case: as many of its tokens, at most.
  int few_row_tokens = 100000;
  int prefill_tokens = 100000;
  int chunk = 1024;  // rows between grid lines
};

// `golden`: the folder of the golden files.
void CheckModels(kernels::CudaBackend& backend, const std::string& golden,
                 const ModelSizes& sizes, Report& report);

}  // namespace holdfast::gpu_check

#endif  // HOLDFAST_TESTS_GPU_MODEL_CHECKS_H_
