#include "kernels/cuda/ipc/ipc_memory.h"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "kernels/cuda/ipc/driver_call.h"

namespace holdfast::kernels::cuda {
namespace {

StatusOr<cudaUUID_t> CurrentDevice() {
  int device = 0;
  HF_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device), "the current device");
  cudaDeviceProp properties = {};
  HF_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, device),
                          "the current device's properties");
  cudaUUID_t uuid;
  static_assert(sizeof(uuid) == sizeof(properties.uuid));
  std::memcpy(&uuid, &properties.uuid, sizeof(uuid));
  return uuid;
}

// A handle names the allocation that an address lies in, and is opened at its
// base.
Status CheckWhole(const void* memory, std::size_t bytes) {
  // The driver wants this thread's context, which the runtime makes current
  // only in calls that need one.
  HF_CUDA_RETURN_IF_ERROR(cudaFree(nullptr), "a CUDA context");
  decltype(&cuMemGetAddressRange) address_range = nullptr;
  HF_RETURN_IF_ERROR(FindDriverCall("cuMemGetAddressRange", &address_range));
  const auto address =
      static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory));
  CUdeviceptr base = 0;
  std::size_t size = 0;
  HF_RETURN_IF_ERROR(DriverStatus(address_range(&base, &size, address),
                                  "the allocation of device memory"));
  if (base == address && size == bytes) return OkStatus();
  return InvalidArgument("exporting " + std::to_string(bytes) + " bytes at " +
                         std::to_string(address - base) +
                         " of an allocation of " + std::to_string(size) +
                         ": a handle names a whole one");
}

}  // namespace

std::uint64_t ProcessStart(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  // The program's name, in brackets, may hold anything.
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(text.substr(end + 1));
  std::string skipped;
  for (int i = 0; i < 19; ++i) fields >> skipped;  // fields 3 to 21
  std::uint64_t start = 0;
  fields >> start;
  return start;
}

StatusOr<IpcHandle> ExportMemory(const void* memory, std::size_t bytes) {
  if (bytes == 0 || bytes % kDeviceGranule != 0) {
    return InvalidArgument("exporting " + std::to_string(bytes) +
                           " bytes: the handle would show other allocations");
  }
  HF_RETURN_IF_ERROR(CheckWhole(memory, bytes));
  IpcHandle handle;
  HF_ASSIGN_OR_RETURN(handle.device, CurrentDevice());
  HF_CUDA_RETURN_IF_ERROR(
      cudaIpcGetMemHandle(&handle.memory, const_cast<void*>(memory)),
      "exporting device memory");
  handle.bytes = bytes;
  handle.exporter_pid = static_cast<std::uint32_t>(getpid());
  handle.exporter_start = ProcessStart(getpid());
  return handle;
}

StatusOr<ImportedMemory> ImportedMemory::Open(const IpcHandle& handle) {
  if (handle.exporter_pid == static_cast<std::uint32_t>(getpid())) {
    return InvalidArgument("importing device memory of process " +
                           std::to_string(handle.exporter_pid) +
                           ": this process has the same id");
  }
  HF_ASSIGN_OR_RETURN(const cudaUUID_t device, CurrentDevice());
  if (std::memcmp(&device, &handle.device, sizeof(device)) != 0) {
    return FailedPrecondition("importing device memory of process " +
                              std::to_string(handle.exporter_pid) +
                              ": it is of another device");
  }
  ImportedMemory memory;
  void* pointer = nullptr;
  HF_CUDA_RETURN_IF_ERROR(cudaIpcOpenMemHandle(&pointer, handle.memory,
                                               cudaIpcMemLazyEnablePeerAccess),
                          "importing device memory of process " +
                              std::to_string(handle.exporter_pid));
  memory.data_ = static_cast<std::byte*>(pointer);
  memory.bytes_ = handle.bytes;
  return memory;
}

ImportedMemory::ImportedMemory(ImportedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

ImportedMemory& ImportedMemory::operator=(ImportedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

ImportedMemory::~ImportedMemory() {
  if (data_ != nullptr) (void)cudaIpcCloseMemHandle(data_);
}

}  // namespace holdfast::kernels::cuda
