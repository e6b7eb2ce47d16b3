// Whole models on the CUDA backend: against golden files, and resumed against
// cold runs by memcmp.
#ifndef HOLDFAST_TESTS_GPU_MODEL_CHECKS_H_
#define HOLDFAST_TESTS_GPU_MODEL_CHECKS_H_

#include <string>

#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/report.h"

namespace holdfast::gpu_check {

// `golden`: the folder of the golden files, of whose cases
// most_tokens in all are forwarded; `chunk`: rows between grid lines.
void CheckModels(kernels::CudaBackend& backend, const std::string& golden,
                 int most_tokens, int chunk, Report& report);

}  // namespace holdfast::gpu_check

#endif  // HOLDFAST_TESTS_GPU_MODEL_CHECKS_H_
