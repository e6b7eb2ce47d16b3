#include "kernels/cuda/ipc/imported_pool.h"

#include <cstring>
#include <string>
#include <utility>

namespace holdfast::kernels::cuda {
namespace {

// Makes the device with this UUID the thread's.
Status ChooseDevice(const cudaUUID_t& uuid) {
  int devices = 0;
  HF_CUDA_RETURN_IF_ERROR(cudaGetDeviceCount(&devices), "CUDA devices");
  for (int device = 0; device < devices; ++device) {
    cudaDeviceProp properties = {};
    HF_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, device),
                            "a device's properties");
    if (std::memcmp(&properties.uuid, &uuid, sizeof(uuid)) != 0) continue;
    HF_CUDA_RETURN_IF_ERROR(cudaSetDevice(device), "choosing a device");
    return OkStatus();
  }
  return FailedPrecondition("the memory is of another device: none of the " +
                            std::to_string(devices) +
                            " to be seen here has its UUID");
}

}  // namespace

StatusOr<ImportedPool> ImportedPool::Open(const IpcHandle& handle) {
  HF_RETURN_IF_ERROR(ChooseDevice(handle.device));
  ImportedPool pool;
  HF_ASSIGN_OR_RETURN(pool.stream_, MakeStream());
  HF_ASSIGN_OR_RETURN(ImportedMemory memory, ImportedMemory::Open(handle));
  pool.memory_.emplace(std::move(memory));
  return pool;
}

Status ImportedPool::Copy(std::span<const Part> parts) {
  for (const Part& part : parts) {
    if (part.offset > bytes() || part.to.size() > bytes() - part.offset) {
      return InvalidArgument("copying " + std::to_string(part.to.size()) +
                             " bytes at " + std::to_string(part.offset) +
                             " of " + std::to_string(bytes()));
    }
  }
  cudaError_t error = cudaSuccess;
  for (const Part& part : parts) {
    error =
        cudaMemcpyAsync(part.to.data(), memory_->data() + part.offset,
                        part.to.size(), cudaMemcpyDeviceToHost, stream_.get());
    if (error != cudaSuccess) break;
  }
  // After an error too: what was begun still writes.
  const cudaError_t ended = cudaStreamSynchronize(stream_.get());
  HF_CUDA_RETURN_IF_ERROR(error, "copying rows of another process's pool");
  HF_CUDA_RETURN_IF_ERROR(ended, "copying rows of another process's pool");
  return OkStatus();
}

}  // namespace holdfast::kernels::cuda
