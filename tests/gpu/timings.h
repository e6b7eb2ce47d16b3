// What operations take, against what the device's memory and matrix unit allow.
#ifndef HOLDFAST_TESTS_GPU_TIMINGS_H_
#define HOLDFAST_TESTS_GPU_TIMINGS_H_

#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/report.h"

namespace holdfast::gpu_check {

// `small`: sizes for an emulated device; its figures say nothing.
void MeasureTimings(kernels::CudaBackend& backend, bool small, Report& report);

}  // namespace holdfast::gpu_check

#endif  // HOLDFAST_TESTS_GPU_TIMINGS_H_
