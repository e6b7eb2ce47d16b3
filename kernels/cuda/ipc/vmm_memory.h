// Device memory that another process maps from a file descriptor (the driver's
// virtual memory management). For the probe: what a machine allows.
#ifndef HOLDFAST_KERNELS_CUDA_IPC_VMM_MEMORY_H_
#define HOLDFAST_KERNELS_CUDA_IPC_VMM_MEMORY_H_

#include <cuda.h>

#include <cstddef>

#include "kernels/status.h"

namespace holdfast::kernels::cuda {

struct VmmCalls;

// Mapped for reading and writing until this is destroyed. Movable.
class VmmMemory {
 public:
  // Of device 0; `bytes` is a multiple of 2 MiB.
  static StatusOr<VmmMemory> Create(std::size_t bytes);
  // `fd` stays the caller's.
  static StatusOr<VmmMemory> Import(int fd, std::size_t bytes);

  VmmMemory(VmmMemory&& other) noexcept;
  VmmMemory& operator=(VmmMemory&&) = delete;
  ~VmmMemory();

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  // A descriptor for the other process; the caller closes it.
  StatusOr<int> ExportFd() const;

 private:
  explicit VmmMemory(const VmmCalls& calls) : calls_(&calls) {}
  Status Map();

  const VmmCalls* calls_;
  CUmemGenericAllocationHandle handle_ = 0;
  bool created_ = false;  // handle_ is to be released
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;
  bool mapped_ = false;
};

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_IPC_VMM_MEMORY_H_
