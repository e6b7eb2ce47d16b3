// Devices, versions, errors, kernels' attributes.
#include <cstdio>
#include <cstring>
#include <utility>

#include "tests/cuda_emulation/fake_state.h"

using holdfast::emulation::Runtime;

cudaError_t cudaGetDeviceCount(int* count) {
  HF_ENTER("cudaGetDeviceCount");
  *count = runtime.device.count_error == cudaSuccess ? 1 : 0;
  return runtime.Answer(runtime.device.count_error);
}

cudaError_t cudaSetDevice(int device) {
  HF_ENTER("cudaSetDevice");
  runtime.Context() = true;
  return runtime.Answer(device == 0 ? runtime.device.count_error
                                    : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int* device) {
  HF_ENTER("cudaGetDevice");
  *device = 0;
  return runtime.Answer(runtime.device.count_error);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  HF_ENTER("cudaGetDeviceProperties");
  if (device != 0) return runtime.Answer(cudaErrorInvalidDevice);
  std::memset(properties, 0, sizeof(*properties));
  std::snprintf(properties->name, sizeof(properties->name), "%s",
                runtime.device.name.c_str());
  std::memset(properties->uuid.bytes, runtime.device.uuid_byte, 16);
  properties->totalGlobalMem = runtime.device.total_bytes;
  properties->major = runtime.device.major;
  properties->minor = runtime.device.minor;
  properties->multiProcessorCount = runtime.device.processors;
  properties->integrated = runtime.device.integrated ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                   int device) {
  HF_ENTER("cudaDeviceGetAttribute");
  if (device != 0) return runtime.Answer(cudaErrorInvalidDevice);
  const auto& fake = runtime.device;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = fake.processors;
      return cudaSuccess;
    case cudaDevAttrIntegrated:
      *value = fake.integrated;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = fake.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = fake.minor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(fake.shared_bytes);
      return cudaSuccess;
    case cudaDevAttrHostRegisterSupported:
      *value = fake.host_register;
      return cudaSuccess;
    case cudaDevAttrIpcEventSupport:
      *value = fake.ipc_events;
      return cudaSuccess;
    case cudaDevAttrPageableMemoryAccess:
      *value = fake.pageable_access;
      return cudaSuccess;
    default:
      *value = 0;
      return cudaSuccess;
  }
}

cudaError_t cudaDriverGetVersion(int* version) {
  HF_ENTER("cudaDriverGetVersion");
  *version = runtime.device.count_error == cudaSuccess ? CUDART_VERSION : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  HF_ENTER("cudaRuntimeGetVersion");
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  HF_ENTER("cudaDeviceSynchronize");
  runtime.Flush();
  runtime.ArriveAll();
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    default:
      return "cudaError";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorNotSupported:
      return "operation not supported";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    default:
      return "emulated error";
  }
}

cudaError_t cudaGetLastError() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  if (runtime.sticky != cudaSuccess) return runtime.sticky;
  return std::exchange(runtime.last, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.sticky != cudaSuccess ? runtime.sticky : runtime.last;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  HF_ENTER("cudaFuncGetAttributes");
  if (!runtime.device.has_code) {
    return runtime.Answer(cudaErrorNoKernelImageForDevice);
  }
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute,
                                 int value) {
  HF_ENTER("cudaFuncSetAttribute");
  if (value < 0 ||
      static_cast<std::size_t>(value) > runtime.device.shared_bytes) {
    return runtime.Answer(cudaErrorInvalidValue);
  }
  runtime.shared_limits[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}
