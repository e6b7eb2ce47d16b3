// Stands in for CUDA's header in emulated builds.
#ifndef HOLDFAST_TESTS_CUDA_EMULATION_INCLUDE_CUDA_RUNTIME_H_
#define HOLDFAST_TESTS_CUDA_EMULATION_INCLUDE_CUDA_RUNTIME_H_

#include "cuda_runtime_api.h"
#include "tests/cuda_emulation/execution.h"

namespace holdfast::emulation {
// What a launch of the kernel would be refused for; cudaSuccess: nothing.
cudaError_t CheckLaunch(const void* kernel, dim3 grid, dim3 block,
                        std::size_t shared_bytes);
}  // namespace holdfast::emulation

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  void* attrs = nullptr;
  unsigned numAttrs = 0;
};

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                               void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  namespace emulation = holdfast::emulation;
  const cudaError_t error = emulation::CheckLaunch(
      reinterpret_cast<const void*>(kernel), config->gridDim, config->blockDim,
      config->dynamicSmemBytes);
  if (error != cudaSuccess) return error;
  emulation::RunGrid(config->gridDim, config->blockDim,
                     config->dynamicSmemBytes,
                     [&] { kernel(static_cast<Parameters>(arguments)...); });
  return cudaSuccess;
}

template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...),
                                 cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute,
                              value);
}

template <typename... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                  void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes,
                               reinterpret_cast<const void*>(kernel));
}

#endif  // HOLDFAST_TESTS_CUDA_EMULATION_INCLUDE_CUDA_RUNTIME_H_
