// The driver's virtual memory management: a memfd for each allocation, address
// ranges of their own, no access before it is set.
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <string_view>

#include "tests/cuda_emulation/fake_state.h"

namespace {

constexpr std::size_t kGranule = std::size_t{2} << 20;

struct Allocation {
  int fd = -1;
  std::size_t bytes = 0;
  bool exportable = false;
};
std::map<CUmemGenericAllocationHandle, Allocation> allocations;
CUmemGenericAllocationHandle next_handle = 1;

void* Address(CUdeviceptr address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

CUresult Add(const Allocation& allocation,
             CUmemGenericAllocationHandle* handle) {
  *handle = next_handle++;
  allocations[*handle] = allocation;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                     const CUmemAllocationProp* properties,
                     unsigned long long) {
  if (bytes == 0 || bytes % kGranule != 0 ||
      properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = memfd_create("fake-vmm", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return Add({fd, bytes,
              properties->requestedHandleTypes ==
                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
             handle);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const auto it = allocations.find(handle);
  if (it == allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  close(it->second.fd);  // pages go with the last mapping and descriptor
  allocations.erase(it);
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareable,
                                      CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type,
                                      unsigned long long) {
  const auto it = allocations.find(handle);
  if (it == allocations.end() || !it->second.exportable ||
      type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = fcntl(it->second.fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_NOT_SUPPORTED;
  *static_cast<int*>(shareable) = fd;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                        void* shareable,
                                        CUmemAllocationHandleType type) {
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(shareable));
  struct stat file = {};
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      fstat(fd, &file) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Add({fcntl(fd, F_DUPFD_CLOEXEC, 0),
              static_cast<std::size_t>(file.st_size), false},
             handle);
}

CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes,
                             std::size_t, CUdeviceptr, unsigned long long) {
  void* const range =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (range == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(range));
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  return munmap(Address(address), bytes) == 0 ? CUDA_SUCCESS
                                              : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  const auto it = allocations.find(handle);
  if (it == allocations.end() || offset != 0 || bytes != it->second.bytes ||
      mmap(Address(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
           it->second.fd, 0) == MAP_FAILED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// Of memory of cudaMalloc.
CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* bytes,
                              CUdeviceptr address) {
  if (!holdfast::emulation::Runtime::Context()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  auto& runtime = holdfast::emulation::Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  auto* const at = static_cast<char*>(Address(address));
  auto it = runtime.allocations.upper_bound(at);
  if (it == runtime.allocations.begin()) return CUDA_ERROR_INVALID_VALUE;
  --it;
  if (at >= it->first + it->second) return CUDA_ERROR_INVALID_VALUE;
  *base = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(it->first));
  *bytes = it->second;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  return mmap(Address(address), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes,
                        const CUmemAccessDesc* access, std::size_t count) {
  if (count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
      mprotect(Address(address), bytes, PROT_READ | PROT_WRITE) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned, unsigned long long,
    cudaDriverEntryPointQueryResult* result) {
  HF_ENTER("cudaGetDriverEntryPointByVersion");
  const struct {
    std::string_view name;
    void* address;
  } known[] = {
      {"cuMemCreate", reinterpret_cast<void*>(&cuMemCreate)},
      {"cuMemRelease", reinterpret_cast<void*>(&cuMemRelease)},
      {"cuMemExportToShareableHandle",
       reinterpret_cast<void*>(&cuMemExportToShareableHandle)},
      {"cuMemImportFromShareableHandle",
       reinterpret_cast<void*>(&cuMemImportFromShareableHandle)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(&cuMemAddressReserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(&cuMemAddressFree)},
      {"cuMemMap", reinterpret_cast<void*>(&cuMemMap)},
      {"cuMemGetAddressRange", reinterpret_cast<void*>(&cuMemGetAddressRange)},
      {"cuMemUnmap", reinterpret_cast<void*>(&cuMemUnmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(&cuMemSetAccess)},
  };
  *result = cudaDriverEntryPointSymbolNotFound;
  *function = nullptr;
  if (!runtime.device.vmm) return cudaSuccess;
  for (const auto& one : known) {
    if (one.name != symbol) continue;
    *function = one.address;
    *result = cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}
