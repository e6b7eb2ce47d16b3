#include "kernels/cuda/device_memory.h"

namespace holdfast::kernels::cuda {

Status ToStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return OkStatus();
  // A call's error stays for the next query if nobody takes it.
  (void)cudaGetLastError();
  std::string message(what);
  message += ": ";
  message += cudaGetErrorName(error);
  message += ": ";
  message += cudaGetErrorString(error);
  switch (error) {
    case cudaErrorMemoryAllocation:
      return ResourceExhausted(std::move(message));
    case cudaErrorNotSupported:
      return Unimplemented(std::move(message));
    default:
      return Internal(std::move(message));
  }
}

std::size_t DeviceMemory::Rounded(std::size_t bytes) {
  if (bytes < kDeviceGranule / 2) return bytes;
  return (bytes + kDeviceGranule - 1) / kDeviceGranule * kDeviceGranule;
}

StatusOr<DeviceMemory> DeviceMemory::Make(std::size_t bytes,
                                          std::string_view what) {
  DeviceMemory memory;
  if (bytes == 0) return memory;
  const std::size_t rounded = Rounded(bytes);
  const std::string describe = std::to_string(bytes) +
                               " bytes of device memory for " +
                               std::string(what);
  void* pointer = nullptr;
  HF_CUDA_RETURN_IF_ERROR(cudaMalloc(&pointer, rounded), describe);
  memory.memory_.reset(static_cast<std::byte*>(pointer));
  memory.bytes_ = rounded;
  HF_CUDA_RETURN_IF_ERROR(cudaMemset(pointer, 0, rounded), describe);
  // The host does not wait for it by itself, nor do streams of ours.
  HF_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(nullptr), describe);
  return memory;
}

Status CopyToDevice(void* to, const void* from, std::size_t bytes,
                    std::string_view what) {
  HF_CUDA_RETURN_IF_ERROR(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice),
                          what);
  // From ordinary memory it may return before the bytes have arrived.
  HF_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(nullptr), what);
  return OkStatus();
}

StatusOr<PinnedMemory> PinnedMemory::Make(std::size_t bytes,
                                          std::string_view what) {
  PinnedMemory memory;
  if (bytes == 0) return memory;
  void* pointer = nullptr;
  HF_CUDA_RETURN_IF_ERROR(cudaHostAlloc(&pointer, bytes, cudaHostAllocDefault),
                          std::to_string(bytes) +
                              " bytes of pinned memory for " +
                              std::string(what));
  memory.memory_.reset(static_cast<std::byte*>(pointer));
  memory.bytes_ = bytes;
  return memory;
}

StatusOr<PinnedRegion> PinnedRegion::Make(void* memory, std::size_t bytes,
                                          std::string_view what) {
  HF_CUDA_RETURN_IF_ERROR(
      cudaHostRegister(memory, bytes, cudaHostRegisterDefault),
      "pinning " + std::to_string(bytes) + " bytes of " + std::string(what));
  return PinnedRegion(memory);
}

StatusOr<Stream> MakeStream() {
  cudaStream_t stream = nullptr;
  HF_CUDA_RETURN_IF_ERROR(
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
      "a CUDA stream");
  return Stream(stream);
}

StatusOr<Event> MakeEvent() {
  cudaEvent_t event = nullptr;
  HF_CUDA_RETURN_IF_ERROR(
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "a CUDA event");
  return Event(event);
}

}  // namespace holdfast::kernels::cuda
