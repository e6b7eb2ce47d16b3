// Functions of the driver, asked of the runtime by name: nothing links to it.
#ifndef HOLDFAST_KERNELS_CUDA_IPC_DRIVER_CALL_H_
#define HOLDFAST_KERNELS_CUDA_IPC_DRIVER_CALL_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

#include "kernels/cuda/device_memory.h"
#include "kernels/status.h"

namespace holdfast::kernels::cuda {

// kUnimplemented: the driver has no such function. A context must be current
// before it is called.
template <typename Call>
Status FindDriverCall(const char* name, Call* call) {
  constexpr unsigned kCallsOf = 12000;  // CUDA 12.0: as they are since
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  HF_CUDA_RETURN_IF_ERROR(
      cudaGetDriverEntryPointByVersion(name, &address, kCallsOf,
                                       cudaEnableDefault, &result),
      std::string("the driver's ") + name);
  if (result != cudaDriverEntryPointSuccess || address == nullptr) {
    return Unimplemented(std::string("the driver has no ") + name);
  }
  *call = reinterpret_cast<Call>(address);
  return OkStatus();
}

inline Status DriverStatus(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return OkStatus();
  return Internal(std::string(what) + ": the driver's error " +
                  std::to_string(static_cast<int>(result)));
}

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_IPC_DRIVER_CALL_H_
