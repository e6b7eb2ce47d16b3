// Device memory that another process reads (deploy/GPU.md, arena `cuda_ipc`):
// only its owner writes it. Legacy CUDA IPC: a handle names a whole allocation,
// so only memory that is alone in one is exported.
#ifndef HOLDFAST_KERNELS_CUDA_IPC_IPC_MEMORY_H_
#define HOLDFAST_KERNELS_CUDA_IPC_IPC_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_memory.h"
#include "kernels/status.h"

namespace holdfast::kernels::cuda {

// What the importer needs, as it travels between two processes of one machine.
struct IpcHandle {
  cudaIpcMemHandle_t memory = {};
  cudaUUID_t device = {};  // an ordinal means nothing to the other side
  std::uint64_t bytes = 0;
  // Whose it is: handles of a memory freed and allocated anew can be equal byte
  // by byte, so an import is never found again by its handle alone.
  std::uint64_t exporter_start = 0;  // clock ticks since boot
  std::uint32_t exporter_pid = 0;
  std::uint32_t reserved = 0;
};

// Of a whole allocation of at least 2 MiB, as DeviceMemory makes it; the driver
// is asked. The memory must outlive every import.
StatusOr<IpcHandle> ExportMemory(const void* memory, std::size_t bytes);
inline StatusOr<IpcHandle> ExportMemory(const DeviceMemory& memory) {
  return ExportMemory(memory.data(), memory.bytes());
}

// Another process's memory, mapped here until this is destroyed. To be
// destroyed as soon as the exporter's socket closes: until then its pages stay
// taken, also after its death.
class ImportedMemory {
 public:
  // Refuses a handle of another device and one of this process.
  static StatusOr<ImportedMemory> Open(const IpcHandle& handle);

  ImportedMemory(ImportedMemory&& other) noexcept;
  ImportedMemory& operator=(ImportedMemory&& other) noexcept;
  ~ImportedMemory();

  const std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  ImportedMemory() = default;

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Identifies a process beyond its id, which is given again. 0: it is gone.
std::uint64_t ProcessStart(int pid);

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_IPC_IPC_MEMORY_H_
