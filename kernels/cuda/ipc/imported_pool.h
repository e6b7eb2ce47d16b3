// Another process's device memory, read by copies into host memory
// (deploy/GPU.md, arena `cuda_ipc`: the cache service's side).
#ifndef HOLDFAST_KERNELS_CUDA_IPC_IMPORTED_POOL_H_
#define HOLDFAST_KERNELS_CUDA_IPC_IMPORTED_POOL_H_

#include <cstddef>
#include <optional>
#include <span>

#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/ipc/ipc_memory.h"
#include "kernels/status.h"

namespace holdfast::kernels::cuda {

// Of one thread: opening chooses its device. Nothing here has a deadline: what
// the driver does may never return, so the thread is one to be lost.
class ImportedPool {
 public:
  // On the device that the handle names, if it can be seen from here.
  static StatusOr<ImportedPool> Open(const IpcHandle& handle);

  std::size_t bytes() const { return memory_->bytes(); }

  struct Part {
    std::size_t offset = 0;
    std::span<std::byte> to;
  };
  // On a stream of its own, which nothing of the other process waits for. When
  // this returns, the bytes are there, or an error says that some are not. What
  // the other process writes meanwhile is mixed in: it must say, by other
  // means, that it did not.
  Status Copy(std::span<const Part> parts);

 private:
  ImportedPool() = default;

  std::optional<ImportedMemory> memory_;
  Stream stream_;
};

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_IPC_IMPORTED_POOL_H_
